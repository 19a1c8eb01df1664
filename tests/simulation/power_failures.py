"""A disk that loses what was not synced: records the calls of the local storage and rebuilds folders after a failure.

What POSIX allows after a power failure:

- A file has its content of the last fsync; without one it is whole, cut short, empty, or zeros.
- A folder has its entries of the last fsync, and of each later change (a creation, a renaming, a deletion) any one that
  a prefix of the changes of that name gives. A folder whose own name was lost is lost with all files in it.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from pyhudi.storage.temporary_names import is_temporary


class Loss(StrEnum):
    """How much of what was not synced a power failure takes.

    EVERYTHING: all unsynced names and contents. CONTENT: contents alone, as file systems with a journal of names do.
    DELETIONS: deletions alone are undone.
    ANY: for each name and each content what a seed decides.
    """

    EVERYTHING = "everything"
    CONTENT = "content"
    DELETIONS = "deletions"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Failure:
    """step: number of changes and syncs before it; seed: of a loss of kind ANY."""

    step: int
    loss: Loss
    seed: int = 0


@dataclass(eq=False, slots=True)
class _File:
    written: bytes = b""
    synced: bytes | None = None


@dataclass(eq=False, slots=True)
class _Folder:
    """entries: current; synced: at the last fsync; changes: the later ones, in order."""

    entries: dict[str, _File | _Folder] = field(default_factory=dict)
    synced: dict[str, _File | _Folder] = field(default_factory=dict)
    changes: list[tuple[str, _File | _Folder | None]] = field(default_factory=list)

    def change(self, name: str, node: _File | _Folder | None) -> None:
        if node is None:
            self.entries.pop(name, None)
        else:
            self.entries[name] = node
        self.changes.append((name, node))

    def sync(self) -> None:
        self.synced = dict(self.entries)
        self.changes.clear()


Step = Callable[[_Folder], None]


class RecordedDisk:
    """The functions of `os` that the local storage calls, for the files below `root`; replaces its module `os`.

    Attributes:
        steps: The changes and syncs so far, each a function of the root's folder.
    """

    def __init__(self, root: Path) -> None:
        self.steps: list[Step] = []
        self._root = root
        self._mutex = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        with self._mutex:
            descriptor = os.open(path, flags, mode)
            if flags & os.O_CREAT:
                self._record(path, lambda folder, name: folder.change(name, _File()))
            return descriptor

    def fsync(self, descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        with self._mutex:
            if os.path.isdir(path):
                folders = self._parts(path)
                self.steps.append(lambda root: _folder(root, folders).sync())
                return
            data = Path(path).read_bytes()

            def sync(folder: _Folder, name: str) -> None:
                file = _file(folder, name)
                file.written = file.synced = data

            self._record(path, sync)

    def mkdir(self, path: str) -> None:
        with self._mutex:
            os.mkdir(path)
            self._record(path, lambda folder, name: folder.change(name, _Folder()))

    def unlink(self, path: str) -> None:
        with self._mutex:
            os.unlink(path)
            self._record(path, lambda folder, name: folder.change(name, None))

    def rmdir(self, path: str) -> None:
        with self._mutex:
            os.rmdir(path)
            self._record(path, lambda folder, name: folder.change(name, None))

    def link(self, source: str, target: str) -> None:
        with self._mutex:
            os.link(source, target)
            self._record_name(source, target, is_moved=False)

    def rename(self, source: str, target: str) -> None:
        with self._mutex:
            os.rename(source, target)
            self._record_name(source, target, is_moved=True)

    def replace(self, source: str, target: str) -> None:
        self.rename(source, target)

    def after(self, step_count: int) -> _Folder:
        """The disk after the first steps, with what was synced of it."""
        root = _Folder()
        for step in self.steps[:step_count]:
            step(root)
        return root

    def _record(self, path: str, change: Callable[[_Folder, str], None]) -> None:
        *folders, name = self._parts(path)
        self.steps.append(lambda root: change(_folder(root, folders), name))

    def _parts(self, path: str) -> tuple[str, ...]:
        return Path(path).relative_to(self._root).parts

    def _record_name(self, source: str, target: str, *, is_moved: bool) -> None:
        data = Path(target).read_bytes()
        (*source_folders, source_name), (*target_folders, target_name) = self._parts(source), self._parts(target)

        def change(root: _Folder) -> None:
            folder = _folder(root, source_folders)
            file = _file(folder, source_name)
            file.written = data
            _folder(root, target_folders).change(target_name, file)
            if is_moved:
                folder.change(source_name, None)

        self.steps.append(change)


def lose_power(disk: _Folder, failure: Failure, target: Path, modified_ms: int) -> None:
    """Write what a power failure leaves of a disk into a folder. modified_ms: modification time of all files."""
    _Survival(failure.loss, random.Random(failure.seed), modified_ms).write(disk, target)


@dataclass(slots=True)
class _Survival:
    loss: Loss
    random: random.Random
    modified_ms: int

    def write(self, folder: _Folder, target: Path) -> None:
        target.mkdir()
        for name, node in sorted(self._entries(folder).items()):
            if isinstance(node, _Folder):
                self.write(node, target / name)
            else:
                (target / name).write_bytes(self._content(node))
                os.utime(target / name, ns=(self.modified_ms * 1_000_000,) * 2)

    def _entries(self, folder: _Folder) -> dict[str, _File | _Folder]:
        if self.loss is Loss.EVERYTHING:
            return folder.synced
        if self.loss is Loss.CONTENT:
            return folder.entries
        if self.loss is Loss.DELETIONS:
            gone = {name: node for name, node in folder.changes if node is not None and not is_temporary(name)}
            return {**folder.synced, **gone, **folder.entries}
        entries = dict(folder.synced)
        for name in dict.fromkeys(name for name, _ in folder.changes):
            states = [node for changed, node in folder.changes if changed == name]
            kept = self.random.randint(0, len(states))
            node = states[kept - 1] if kept else entries.get(name)
            if node is None:
                entries.pop(name, None)
            else:
                entries[name] = node
        return entries

    def _content(self, file: _File) -> bytes:
        if file.synced is not None:
            return file.synced
        data = file.written
        if self.loss is Loss.DELETIONS:
            return data
        if self.loss is not Loss.ANY:
            return b""
        return self.random.choice([data, b"", data[: len(data) // 2], bytes(len(data))])


def _folder(root: _Folder, parts: Sequence[str]) -> _Folder:
    for part in parts:
        found = root.entries[part]
        assert isinstance(found, _Folder)
        root = found
    return root


def _file(folder: _Folder, name: str) -> _File:
    """The file of that name; one that Arrow has created is new here."""
    found = folder.entries.get(name)
    if found is None:
        found = _File()
        folder.change(name, found)
    assert isinstance(found, _File)
    return found

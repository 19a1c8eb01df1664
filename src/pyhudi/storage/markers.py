"""Markers: the data files that a write has begun to create, so that a rollback can find them.

Below `.hoodie/.temp/<request time>/` there is one of two layouts:

    direct            <partition>/<data file name>.marker.<CREATE|MERGE|APPEND>      empty files, one per data file
    timeline server   MARKERS.type and MARKERS0, MARKERS1, ...                       lists with one marker per line

PyHudi reads both. It writes direct markers, or lists with `hoodie.write.markers.type=TIMELINE_SERVER_BASED`. Hudi's
timeline server caches the lists of a write in memory and rewrites them. In PyHudi, tasks of many processes create
markers independently. So each marker is a list of its own, numbered by a hash of its line: a repeated task writes the
same file. The type file is written first, by the process that starts the action.

A marker is written before its data file. A data file without a marker would survive the rollback of its write, and Hudi
would later treat it as committed data.

Source: docs/formats/timeline.md, "Heartbeats and failed writes".

This module neither lists nor deletes data files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import xxhash

from pyhudi.errors import CorruptData
from pyhudi.format.names import MarkerType, decode_marker_list, format_marker, parse_marker
from pyhudi.format.paths import MARKER_FOLDER, file_name, join_path, parent_folder
from pyhudi.storage.base import Storage
from pyhudi.storage.thread_pool import in_threads

_TYPE_FILE = "MARKERS.type"
_LISTS = b"TIMELINE_SERVER_BASED"
_LIST_FILE = re.compile(r"MARKERS\d+")


class Markers:
    """The markers of one instant.  Thread-safe; tasks on several machines may each have an instance.

    in_lists: Create markers as lines of lists.  All writers of an instant use the same layout, and `begin` precedes
    `create`.
    """

    def __init__(self, storage: Storage, request_time: str, *, in_lists: bool = False) -> None:
        self._storage = storage
        self._in_lists = in_lists
        self._folder = join_path(MARKER_FOLDER, request_time)

    @property
    def folder(self) -> str:
        """The folder of this instant's markers, relative to the table."""
        return self._folder

    def begin(self) -> None:
        """Write the type file of the marker lists, if they are used."""
        if self._in_lists:
            self._storage.put_if_absent(join_path(self._folder, _TYPE_FILE), _LISTS)

    def create(self, data_path: str, marker_type: MarkerType) -> None:
        """Record that the data file is about to be created.  Idempotent."""
        marker = format_marker(data_path, marker_type)
        if not self._in_lists:
            self._storage.put_if_absent(join_path(self._folder, marker), b"")
            return
        line = f"{marker}\n".encode()
        number = xxhash.xxh64_intdigest(line)
        path = join_path(self._folder, f"MARKERS{number}")
        while not self._storage.put_if_absent(path, line) and self._storage.read(path) != line:
            # Hash collision of two lines.
            number += 1
            path = join_path(self._folder, f"MARKERS{number}")

    def list(self, *, in_progress: bool = False) -> tuple[tuple[str, MarkerType], ...]:
        """The recorded data files with their marker types, ascending and without duplicates; empty if there is no folder.

        Data files need not exist, and a running write may add markers concurrently.

        Args:
            in_progress: The writer may be running.  Skip incomplete markers, such as the end of a list that a server is
                rewriting.

        Raises:
            CorruptData: The folder contains something that is not a marker, which may hide one.
        """
        files = tuple(self._storage.walk(self._folder))
        top = [info for info in files if parent_folder(info.path) == self._folder]
        lists = [info.path for info in top if _LIST_FILE.fullmatch(info.name)]
        if any(info.name == _TYPE_FILE for info in top):
            return _ordered(self._listed(lists, truncated=in_progress))
        recorded: list[tuple[str, MarkerType]] = []
        unknown_files: list[str] = []
        for info in files:
            if info.path in lists:
                continue
            marker = parse_marker(info.path[len(self._folder) + 1 :])
            if marker is None:
                unknown_files.append(info.path)
            else:
                recorded.append(marker)
        # A timeline server writes its type file first, but Hudi falls back to the lists without it, and so does PyHudi.
        recorded.extend(self._listed(lists, truncated=in_progress))
        if unknown_files and not in_progress:
            raise CorruptData("a file in the marker folder is not a marker", path=self._storage.absolute(min(unknown_files)))
        return _ordered(recorded)

    def marked_in(self, partition: str) -> frozenset[str]:
        """The data files of a partition that are recorded so far, for a write that may be running.

        Markers that are being written concurrently may be missing, and so may the end of a list that a server is rewriting.
        """
        folder = join_path(self._folder, partition)
        files = {info.path: info for info in self._storage.list(self._folder).files}
        lists = [path for path, info in files.items() if _LIST_FILE.fullmatch(info.name)]
        if partition:
            files = {info.path: info for info in self._storage.list(folder).files}
        parsed = [parse_marker(path[len(self._folder) + 1 :]) for path in files]
        listed = (path for path, _ in self._listed(lists, truncated=True) if parent_folder(path) == partition)
        return frozenset((*(marker[0] for marker in parsed if marker is not None), *listed))

    def delete(self) -> None:
        """Delete all markers of this instant, when it is complete or rolled back.  Missing ones are ignored."""
        self._storage.delete_folder(self._folder)

    def _listed(self, paths: Sequence[str], *, truncated: bool = False) -> Sequence[tuple[str, MarkerType]]:
        """Read the markers in list files.  truncated: accept only complete lines and skip an incomplete last one."""
        recorded: list[tuple[str, MarkerType]] = []
        for path, content in zip(paths, in_threads(self._storage.read, paths), strict=True):
            data = content or b""
            try:
                recorded.extend(decode_marker_list(data[: data.rfind(b"\n") + 1] if truncated else data))
            except CorruptData as error:
                raise error.with_path(self._storage.absolute(path)) from None
        return recorded


def marked_instants(storage: Storage) -> tuple[str, ...]:
    """The request times that have a marker folder, ascending: running writes and failed ones."""
    return tuple(file_name(path) for path in storage.list(MARKER_FOLDER).folders)


def files_being_written(storage: Storage, request_times: Iterable[str]) -> dict[str, str]:
    """Map data files that running writes have begun to create to the request time of the write.

    The file names may contain other instants.

    Args:
        storage: Storage of the table.
        request_times: Writes that may be running.  Markers precede their files, so list the data files first.
    """
    return {path: time for time in request_times for path, _ in Markers(storage, time).list(in_progress=True)}


def _ordered(markers: Sequence[tuple[str, MarkerType]]) -> tuple[tuple[str, MarkerType], ...]:
    return tuple(sorted(set(markers)))

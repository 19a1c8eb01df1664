"""Source files of bootstrapped tables (METADATA_ONLY mode).

The base files of the bootstrap instant hold meta columns only. Row n of such a base file belongs to row n of a source
file outside of the table. The bootstrap index maps base files to source files.

Source: docs/formats/writing.md, "Bootstrap".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from pyhudi.errors import CorruptData
from pyhudi.format.bootstrap_index import BootstrappedGroup, SourceFile, decode_group, decode_source_file, group_key
from pyhudi.format.hfile.hfile_reader import HFile, open_hfile
from pyhudi.format.instants import METADATA_BOOTSTRAP_INSTANT_TIME
from pyhudi.format.names import parse_base_file
from pyhudi.format.paths import BOOTSTRAP_FILE_IDS_FOLDER, BOOTSTRAP_PARTITIONS_FOLDER, file_name
from pyhudi.records.keys.key_spec import KeySpec
from pyhudi.storage.base import Storage
from pyhudi.table.file_slices import FileSlice
from pyhudi.table.table_context import TableContext


@dataclass(frozen=True, slots=True)
class BootstrapSources:
    """Source files that hold the rows of some base files.

    Attributes:
        keys: How the table names records; decides which partition columns are read from paths.
        sources: Source file by the path of the base file.
    """

    keys: KeySpec
    sources: Mapping[str, SourceFile]


def load_bootstrap_sources(context: TableContext, files: Iterable[tuple[str, str, int]]) -> BootstrapSources | None:
    """Load the source files of the given base files (partition path, path, bytes); None if no file has one.

    Raises as `with_sources`.
    """
    sources = load_sources(context, ((partition, path) for partition, path, _ in files))
    return BootstrapSources(context.config.keys, sources) if sources else None


def with_sources(context: TableContext, slices: Iterable[FileSlice]) -> tuple[FileSlice, ...]:
    """Return the slices, each metadata-only base file joined with its source file.

    Raises:
        CorruptData: The bootstrap index is missing, unreadable, or lacks one of the base files.
    """
    every = tuple(slices)
    lacking = [(one.partition, one.base.path) for one in every if one.source is None and one.base is not None]
    sources = load_sources(context, lacking)
    if not sources:
        return every
    return tuple(
        replace(one, source=sources[one.base.path]) if one.base is not None and one.base.path in sources else one for one in every
    )


def load_sources(context: TableContext, files: Iterable[tuple[str, str]]) -> dict[str, SourceFile]:
    """Map the metadata-only base files among the given files (partition path, path) to their source files.

    Raises as `with_sources`.
    """
    if context.config.bootstrap_base_path is None:
        return {}
    keys = {path: group_key(partition, file_id) for partition, path in files if (file_id := _group_without_rows(path))}
    known = _look_up(context, sorted({key.encode() for key in keys.values()})) if keys else {}
    return {path: known[key.encode()] for path, key in keys.items()}


def load_index(context: TableContext) -> Iterator[BootstrappedGroup]:
    """Load the whole bootstrap index by partition and file id; empty if there is none.  Raises CorruptData."""
    for path, index in _opened(context):
        try:
            for batch in index.scan():
                for key, value in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True):
                    yield decode_group(value, key.decode("utf-8", "replace").rpartition("=")[2])
        except CorruptData as error:
            raise error.with_path(context.storage.absolute(path)) from error


def remove_bootstrap_index(storage: Storage) -> None:
    """Delete the bootstrap index once no metadata-only base file is left."""
    for folder in (BOOTSTRAP_PARTITIONS_FOLDER, BOOTSTRAP_FILE_IDS_FOLDER):
        storage.delete([info.path for info in storage.list(folder).files])


def _group_without_rows(path: str) -> str | None:
    """The file id of a metadata-only base file, by its name; None for every other file."""
    name = parse_base_file(file_name(path))
    return name.file_id if name is not None and name.instant_time == METADATA_BOOTSTRAP_INSTANT_TIME else None


def _look_up(context: TableContext, keys: list[bytes]) -> dict[bytes, SourceFile]:
    sources: dict[bytes, SourceFile] = {}
    count = 0
    for path, index in _opened(context):
        count += 1
        try:
            for batch in index.lookup(pa.array(keys, pa.binary())):
                for key, value in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True):
                    sources[key] = decode_source_file(value)
        except CorruptData as error:
            raise error.with_path(context.storage.absolute(path)) from error
    missing = [key.decode() for key in keys if key not in sources]
    if missing:
        raise CorruptData(
            "the bootstrap index lacks the source file of a file group",
            expected=missing[0],
            found=f"{count} files",
        ).with_path(context.storage.absolute(BOOTSTRAP_FILE_IDS_FOLDER))
    return sources


def _opened(context: TableContext) -> Iterator[tuple[str, HFile]]:
    """Open the index by file ids: (path, file)."""
    storage = context.storage
    for info in storage.list(BOOTSTRAP_FILE_IDS_FOLDER).files:
        if not info.name.endswith(".hfile"):
            continue
        try:
            opened = open_hfile(partial(storage.read_range, info.path), info.size_bytes)
        except CorruptData as error:
            raise error.with_path(storage.absolute(info.path)) from error
        yield info.path, opened

"""Tables that were bootstrapped without their rows (METADATA_ONLY): base files of one instant hold meta columns alone, and row n
of each belongs to row n of a file outside of the table, which the bootstrap index names.

Source: docs/formats/writing.md, "Bootstrap".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import pyarrow as pa

from pyhudi.errors import CorruptData
from pyhudi.format.bootstrap import SourceFile, decode_source_file, group_key
from pyhudi.format.hfile.reader import open_hfile
from pyhudi.format.instants import METADATA_BOOTSTRAP_INSTANT_TIME
from pyhudi.format.paths import BOOTSTRAP_FILE_IDS_FOLDER
from pyhudi.table.context import TableContext
from pyhudi.table.slices import FileSlice


def with_sources(context: TableContext, slices: Iterable[FileSlice]) -> tuple[FileSlice, ...]:
    """The slices, those whose base file has meta columns alone with the file that holds their rows.

    Raises CorruptData where the bootstrap index is gone, cannot be read, or does not know one of them.
    """
    found = tuple(slices)
    if context.config.bootstrap_base_path is None or not any(map(lacks_rows, found)):
        return found
    keys = {(one.partition, one.file_id): group_key(one.partition, one.file_id) for one in found if lacks_rows(one)}
    known = _look_up(context, sorted({key.encode() for key in keys.values()}))
    return tuple(
        replace(one, source=known[keys[one.partition, one.file_id].encode()]) if lacks_rows(one) else one for one in found
    )


def lacks_rows(slice_: FileSlice) -> bool:
    """Whether the slice's base file holds meta columns alone, in a table that was bootstrapped."""
    return slice_.base is not None and slice_.base.name.instant_time == METADATA_BOOTSTRAP_INSTANT_TIME


def _look_up(context: TableContext, keys: list[bytes]) -> dict[bytes, SourceFile]:
    storage = context.storage
    files = [info for info in storage.list(BOOTSTRAP_FILE_IDS_FOLDER).files if info.name.endswith(".hfile")]
    sources: dict[bytes, SourceFile] = {}
    for info in files:
        try:
            index = open_hfile(partial(storage.read_range, info.path), info.size_bytes)
            for batch in index.lookup(pa.array(keys, pa.binary())):
                for key, value in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True):
                    sources[key] = decode_source_file(value)
        except CorruptData as error:
            raise error.with_path(storage.absolute(info.path)) from error
    missing = [key.decode() for key in keys if key not in sources]
    if missing:
        raise CorruptData(
            "the bootstrap index does not say where the rows of a file group are",
            expected=missing[0],
            found=f"{len(files)} files",
        ).with_path(storage.absolute(BOOTSTRAP_FILE_IDS_FOLDER))
    return sources

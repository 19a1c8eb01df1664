"""The form in which a table with the key generator COMPLEX stores keys of one field: `value`, or `field:value`.

Hudi up to 0.14.0 stores `field:value`, 0.14.1 to 1.0.2 the value, and 1.1 `field:value` again, or the value by an option
of the writer. No table property records the form, and an upgrade leaves keys as they are: stored keys decide.

Source: docs/formats/record-keys.md, "Record keys".
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData, TableState, Unsupported
from pyhudi.format.log.data_blocks import decode_content
from pyhudi.format.log.framing import BlockType, LogBlock, scan_blocks
from pyhudi.format.meta_columns import RECORD_KEY
from pyhudi.format.names import is_orc, parse_base_file, parse_log_file
from pyhudi.format.orc.orc_reader import OrcFile
from pyhudi.format.parquet.parquet_file import open_parquet
from pyhudi.format.paths import META_FOLDER, file_name, join_path
from pyhudi.records.keys.key_spec import KeyGenerator, KeySpec
from pyhudi.storage.base import Storage

_MOST_FILES = 10
"""Number of files that are opened to find a stored key."""


def has_two_forms(keys: KeySpec) -> bool:
    """Return whether only stored keys show the form of a table's keys."""
    return keys.generator is KeyGenerator.COMPLEX and len(keys.record_fields) == 1


def find_key_prefix(storage: Storage, keys: KeySpec) -> bool | None:
    """Return whether stored keys have the form `field:value`; None if no data file holds a key.

    Args:
        storage: Storage of the table.
        keys: Its key configuration, with one key field.
    """
    for number, path in enumerate(_data_files(storage)):
        if number >= _MOST_FILES:
            break
        try:
            batch = _first_row(storage, path, keys)
        except (CorruptData, TableState, Unsupported):
            # A file that was removed since, or of a failed write.
            continue
        if batch is not None:
            prefixed, bare = key_forms(batch, keys)
            if prefixed is not bare:
                return prefixed
    return None


def key_forms(batch: pa.RecordBatch, keys: KeySpec) -> tuple[bool, bool]:
    """Return whether some keys have the form `field:value`, and whether some have the form `value`.

    Args:
        batch: Rows with `_hoodie_record_key`, and the key field unless the file lacks it.
        keys: Key configuration with one key field.
    """
    stored = pc.cast(batch.column(RECORD_KEY), pa.string()).drop_null()
    name = f"{keys.record_fields[0]}:"
    prefixed = pc.starts_with(stored, name)
    if pc.any(prefixed).as_py() and keys.record_fields[0] in batch.schema.names:
        # A value may itself begin with the name of the field and a colon.
        values = batch.column(keys.record_fields[0]).filter(batch.column(RECORD_KEY).is_valid())
        if not pa.types.is_nested(values.type) and not pa.types.is_binary(values.type):
            is_value = pc.fill_null(pc.equal(stored, pc.cast(values, pa.string())), False)
            prefixed = pc.and_not(prefixed, is_value)
    return bool(pc.any(prefixed).as_py()), bool(pc.any(pc.invert(prefixed)).as_py())


def _first_row(storage: Storage, path: str, keys: KeySpec) -> pa.RecordBatch | None:
    """Return the key and the key field of the first row of a file; None if it has none."""
    columns = {RECORD_KEY, keys.record_fields[0].split(".")[0]}
    if parse_base_file(file_name(path)) is None:
        return _first_log_row(storage, path, columns)
    with storage.open_input(path) as source:
        file = OrcFile(source) if is_orc(path) else open_parquet(source)
        names = [name for name in file.schema_arrow.names if name in columns]
        if RECORD_KEY not in names or not file.metadata.num_row_groups:
            return None
        batches = file.read_row_group(0, columns=names).slice(0, 1).to_batches()
    return next((batch for batch in batches if batch.num_rows and not batch.column(RECORD_KEY).null_count), None)


def _first_log_row(storage: Storage, path: str, columns: set[str]) -> pa.RecordBatch | None:
    info = storage.stat(path)
    for block in scan_blocks(partial(storage.read_range, path), 0 if info is None else info.size_bytes):
        if not isinstance(block, LogBlock) or block.kind not in (BlockType.AVRO, BlockType.PARQUET) or block.schema is None:
            continue
        content = block.read_content(partial(storage.read_range, path))
        rows = next(decode_content(block.kind, block.schema, content), None)
        if rows is not None and rows.num_rows and RECORD_KEY in rows.schema.names:
            return rows.select([name for name in rows.schema.names if name in columns]).slice(0, 1)
    return None


def _data_files(storage: Storage) -> Iterator[str]:
    """Yield data files, the base files of a folder first; folders are listed only until a file is found."""
    folders = [""]
    while folders:
        folder = folders.pop()
        listing = storage.list(folder)
        if folder and join_path(folder, META_FOLDER) in listing.folders:
            continue
        paths = [info.path for info in listing.files]
        yield from (path for path in paths if parse_base_file(file_name(path)) is not None)
        yield from (path for path in paths if parse_log_file(file_name(path)) is not None)
        folders.extend(sorted((path for path in listing.folders if file_name(path) != META_FOLDER), reverse=True))

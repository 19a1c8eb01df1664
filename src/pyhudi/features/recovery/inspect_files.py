"""Tasks that inspect data files without a timeline: the content of a file, and which of its rows another file holds too.

Source: docs/formats/base-file.md; docs/formats/log-file.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData
from pyhudi.format.arrow_to_avro import arrow_to_avro
from pyhudi.format.avro_to_arrow import avro_to_arrow, without_meta_columns
from pyhudi.format.log.framing import CorruptBlock, HeaderKey
from pyhudi.format.log.log_corruption import check_log_complete
from pyhudi.format.meta_columns import COMMIT_SEQNO, COMMIT_TIME, RECORD_KEY, without_meta_fields
from pyhudi.format.names import parse_base_file, parse_log_file
from pyhudi.format.orc.orc_reader import ORC_AVRO_SCHEMA_KEY
from pyhudi.format.paths import file_name
from pyhudi.storage import open_storage
from pyhudi.storage.base import Storage, StorageSpec
from pyhudi.table.file_slices import LogFile
from pyhudi.tasks.base_file_reader import footer_text, open_base_file
from pyhudi.tasks.base_file_writer import AVRO_SCHEMA_KEY
from pyhudi.tasks.log_scan import read_headers


@dataclass(frozen=True, slots=True)
class FileTask:
    """Inspect one data file.  path: relative to the table."""

    storage: StorageSpec
    path: str
    size_bytes: int
    table_name: str


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Facts about a data file.

    Attributes:
        rows: Of a base file; 0 for a log.
        rows_written_by_instant: Rows that the instant in its name wrote; all of them if rows do not record it.
        schema: Avro JSON of its data columns, '' if it does not describe all of them.
        damage: Why it cannot be read.
    """

    path: str
    size_bytes: int
    rows: int = 0
    rows_written_by_instant: int = 0
    schema: str = ""
    damage: str | None = None


def run_file(task: FileTask) -> FileFacts:
    """Inspect a base file's footer and commit times, or the headers of a log's blocks."""
    storage = open_storage(task.storage)
    try:
        return _log_facts(storage, task) if parse_log_file(file_name(task.path)) else _base_facts(storage, task)
    except CorruptData as error:
        return FileFacts(task.path, task.size_bytes, damage=str(error))


def run_identities(task: FileTask) -> pa.Table | None:
    """Return the key and sequence number of each row of a base file, unique for each written row; None for a file
    without meta columns.
    """
    with open_base_file(open_storage(task.storage), task.path) as file:
        columns = [COMMIT_SEQNO, RECORD_KEY]
        return file.read(columns).drop_null() if set(columns) <= set(file.schema_arrow.names) else None


def _base_facts(storage: Storage, task: FileTask) -> FileFacts:
    name = parse_base_file(file_name(task.path))
    assert name is not None, "a data file is a base file or a log"
    with open_base_file(storage, task.path) as file:
        rows = own = file.metadata.num_rows
        text = footer_text(file.metadata, AVRO_SCHEMA_KEY) or footer_text(file.metadata, ORC_AVRO_SCHEMA_KEY)
        arrow = file.schema_arrow
        if COMMIT_TIME in arrow.names:
            times = file.read([COMMIT_TIME])[COMMIT_TIME]
            own = rows if times.null_count == rows else pc.sum(pc.equal(times, name.instant_time)).as_py() or 0
    schema = without_meta_columns(text) if text else arrow_to_avro(without_meta_fields(arrow), task.table_name)
    return FileFacts(task.path, task.size_bytes, rows, own, schema)


def _log_facts(storage: Storage, task: FileTask) -> FileFacts:
    name = parse_log_file(file_name(task.path))
    assert name is not None, "asked for a log alone"
    blocks = read_headers(storage, LogFile(task.path, name, task.size_bytes))
    check_log_complete(blocks, name.instant_time)
    whole = [block for block in blocks if not isinstance(block, CorruptBlock)]
    texts = [block.header(HeaderKey.SCHEMA) for block in whole if not block.is_partial]
    text = next((text for text in texts if text), None)
    if text is None or name.is_cdc:
        return FileFacts(task.path, task.size_bytes)
    held = avro_to_arrow(text)
    schema = text if without_meta_fields(held) is held else without_meta_columns(text)
    return FileFacts(task.path, task.size_bytes, schema=schema)

"""Arguments of writing tasks with defaults, and their output read back."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pyhudi.format.arrow_to_avro import arrow_to_avro
from pyhudi.format.meta_columns import with_meta_fields
from pyhudi.format.names import WriteToken
from pyhudi.options.supported import parse_options
from pyhudi.records.keys.key_spec import KeyGenerator, KeySpec
from pyhudi.records.record_merge import EventTimeRule, RecordMergeRule
from pyhudi.storage import Storage, open_storage
from pyhudi.tasks.base_file_writer import FileSettings
from pyhudi.tasks.incoming_layout import DELETE_COLUMN
from pyhudi.tasks.write_base_files import run_create
from pyhudi.tasks.write_tasks import CreateTask, WriterSpec, WriteStatus

_names = itertools.count()
SMALL = {"hoodie.index.bloom.num_entries": 100, "hoodie.index.bloom.fpp": 0.01, "hoodie.bloom.index.filter.type": "SIMPLE"}
KEYS = KeySpec(KeyGenerator.NON_PARTITION, ("id",))


def new_storage() -> Storage:
    return open_storage(f"memory://execute-{next(_names)}")


def spec(
    storage: Storage,
    schema: pa.Schema,
    instant: str = "20260101000000000",
    *,
    rule: RecordMergeRule | None = None,
    populate: bool = True,
    options: Mapping[str, object] | None = None,
) -> WriterSpec:
    return WriterSpec(
        storage=storage.spec(),
        instant_time=instant,
        data_schema=schema,
        avro_schema=arrow_to_avro(with_meta_fields(schema), "t"),
        files=FileSettings.of(parse_options({**SMALL, **(options or {})})),
        keys=KEYS,
        populate_meta_fields=populate,
        rule=rule or EventTimeRule("ts"),
    )


def incoming(rows: pa.Table, partition: str = "", deletes: Sequence[bool] | None = None) -> pa.Table:
    """Rows in the incoming layout; their key is the column `id`."""
    keys = rows.column("id").cast(pa.string())
    paths = pa.repeat(pa.scalar(partition), rows.num_rows)
    columns: dict[str, Any] = {"_hoodie_record_key": keys, "_hoodie_partition_path": paths}
    columns |= {name: rows.column(name) for name in rows.column_names}
    if deletes is not None:
        columns[DELETE_COLUMN] = pa.array(deletes)
    return pa.table(columns)


def create(made: WriterSpec, rows: pa.Table, partition: str = "", step: int = 65536) -> tuple[WriteStatus, ...]:
    table = incoming(rows, partition)
    pieces = [table.slice(start, step) for start in range(0, table.num_rows, step)]
    return run_create(made, CreateTask(partition, "11111111-2222-3333-4444-555555555555", WriteToken(7, 0, 7)), pieces)


def read(storage: Storage, path: str | None) -> pa.Table:
    assert path is not None
    with storage.open_input(path) as source:
        return pq.ParquetFile(source).read()


def footer(storage: Storage, path: str | None) -> dict[str, str]:
    assert path is not None
    with storage.open_input(path) as source:
        return {key.decode(): value.decode() for key, value in (pq.ParquetFile(source).metadata.metadata or {}).items()}

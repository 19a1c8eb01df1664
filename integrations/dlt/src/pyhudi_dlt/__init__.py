"""dlt destination that writes Apache Hudi tables.

    import dlt
    from pyhudi_dlt import hudi

    pipeline = dlt.pipeline("trips", destination=hudi(bucket_url="/data/lake"))
    pipeline.run(rows, table_name="trips", write_disposition="merge", primary_key="id")

A table of dlt becomes the table `bucket_url/TABLE`.  Each file of a load package is one commit, applied once: a package that is
loaded again after a crash writes nothing twice.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import dlt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from dlt.common.schema.typing import TTableSchema
from dlt.common.schema.utils import get_columns_names_with_prop
from dlt.common.storages.load_package import ParsedLoadJobFileName

import pyhudi as hp

__all__ = ["hudi"]

LOAD_ID_KEY = "dlt.load_id"
"""Key in the extra metadata of a commit: the load package that it belongs to."""


@dlt.destination(
    batch_size=0,
    loader_file_format="parquet",
    name="hudi",
    naming_convention="snake_case",
    max_table_nesting=0,
    loader_parallelism_strategy="table-sequential",
)
def hudi(
    file_path: str,
    table: TTableSchema,
    bucket_url: str = dlt.config.value,
    storage_options: dict[str, str] | None = None,
    options: dict[str, Any] | None = None,
) -> None:
    """Write one file of a load package to a Hudi table.

    Args:
        file_path: The file, in Parquet, from dlt.
        table: The table's schema, from dlt.  Its hints decide: `primary_key` (or `merge_key`) is the record key, `partition` the
            partition column, `dedup_sort` the ordering field; rows with a true `hard_delete` column are deleted by key.
        bucket_url: Folder or URI that holds the tables.
        storage_options: Credentials of the object store, for example from dlt's secrets.
        options: Further options of Hudi, such as `hoodie.datasource.write.table.type`.

    Raises:
        InvalidRequest: The disposition `merge` without a primary key, or rows that do not fit the table.
    """
    location = f"{bucket_url.rstrip('/')}/{table['name']}"
    job = ParsedLoadJobFileName.parse(file_path)
    load_id = PurePath(file_path).parts[-3]
    disposition = table.get("write_disposition", "append")
    keys = get_columns_names_with_prop(table, "primary_key") or get_columns_names_with_prop(table, "merge_key")
    if disposition == "merge" and not keys:
        raise hp.InvalidRequest(f"table {table['name']}: write disposition merge needs primary_key or merge_key")
    rows, deleted = _split_deletes(pq.read_table(file_path), get_columns_names_with_prop(table, "hard_delete"))
    shared: dict[str, Any] = {"options": options, "storage_options": storage_options}
    hp.write(
        location,
        rows,
        _mode(disposition, location, load_id, storage_options),
        record_key=keys or None,
        partition_by=get_columns_names_with_prop(table, "partition") or None,
        ordering=get_columns_names_with_prop(table, "dedup_sort")[:1] or None,
        schema_mode="evolve",
        once=(f"dlt/{job.table_name}/{job.file_id}", 1),
        commit_metadata={LOAD_ID_KEY: load_id},
        **shared,
    )
    if len(deleted):
        hp.Table(location, storage_options).delete(deleted.select(keys), once=(f"dlt/{job.table_name}/{job.file_id}/deletes", 1))


def _mode(disposition: str, location: str, load_id: str, storage_options: dict[str, str] | None) -> str:
    """The first file of a load package replaces the rows of the table under `replace`; the others are added."""
    if disposition == "merge":
        return "upsert"
    if disposition == "append":
        return "append"
    try:
        commits = hp.Table(location, storage_options).inspect.commits()
    except hp.TableNotFound:
        return "overwrite"
    begun = any(dict(commit["metadata"]).get(LOAD_ID_KEY) == load_id for commit in commits.to_pylist())
    return "append" if begun else "overwrite"


def _split_deletes(rows: pa.Table, columns: list[str]) -> tuple[pa.Table, pa.Table]:
    """Rows to write, and rows whose `hard_delete` column is true (or not null, if it is no boolean)."""
    if not columns or columns[0] not in rows.column_names:
        return rows, rows.slice(0, 0)
    marks = rows[columns[0]]
    is_deleted = pc.fill_null(marks, False) if pa.types.is_boolean(marks.type) else pc.is_valid(marks)
    return rows.filter(pc.invert(is_deleted)), rows.filter(is_deleted)

"""Names of delta-rs, PyIceberg, hudi-rs, Hudi and Spark, and their equivalents here. Source: docs/coming-from-delta-lake.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_TABLE = {
    "vacuum": "clean()",
    "optimize": "cluster() or .compact()",
    "history": "inspect.commits() or .timeline()",
    "version": "timeline()",
    "load_as_version": "scan(as_of=...)",
    "load_cdf": "incremental(after=...) or .changes(after=...)",
    "files": "inspect.files()",
    "file_uris": "inspect.files()",
    "overwrite": "insert_overwrite_table(rows)",
    "head": "scan().head(...)",
    "limit": "scan(limit=...)",
    "to_arrow": "scan().to_arrow()",
    "to_pandas": "scan().to_pandas()",
    "to_polars": "scan().to_polars()",
    "to_pyarrow_table": "scan().to_arrow()",
    "to_pyarrow_dataset": "scan().to_dataset()",
    "filter": "scan(filter=...)",
    "select": "scan(columns=...)",
    "snapshots": "inspect.commits()",
    "expire_snapshots": "clean()",
    "metadata": "inspect",
    "create_checkpoint": "run_services()",
    "cleanup_metadata": "archive()",
    "update_schema": "alter",
    "services": "compact(), .cluster(), .clean(), .archive() or .run_services()",
    "expire_partitions": "run_ttl()",
    "maintenance": "clean(), .compact() or .cluster()",
    "add_constraint": "alter.add_constraint(...)",
}
_ALTER = {
    "add_column": "add(column, type)",
    "add_columns": "add(column, type)",
    "delete_column": "drop(column)",
    "drop_column": "drop(column)",
    "drop_columns": "drop(column)",
    "rename_column": "rename(column, name)",
    "update_column": "retype(column, type)",
    "alter_column": "retype(column, type)",
    "change_type": "retype(column, type)",
    "move_after": "reorder(column, after=...)",
    "move_first": "reorder(column, after=None)",
    "set_column_comment": "comment(column, text)",
    "add_constraints": "add_constraint(name, condition)",
}
_SCAN = {
    "collect": "to_arrow()",
    "to_table": "to_arrow()",
    "to_pyarrow_table": "to_arrow()",
    "to_arrow_batch_reader": "to_reader()",
    "to_pyarrow_dataset": "to_dataset()",
    "to_record_batches": "to_batches()",
    "toPandas": "to_pandas()",
    "plan_files": "explain()",
    "num_rows": "count()",
    "show": "head()",
}
_HINTS = {"Table": _TABLE, "Alter": _ALTER, "Scan": _SCAN}
_MODULE = {
    "DeltaTable": "pyhudi.Table(uri)",
    "HudiTable": "pyhudi.Table(uri)",
    "HudiTableBuilder": "pyhudi.Table(uri, storage_options, options)",
    "load_table": "pyhudi.Table(uri)",
    "load_catalog": "pyhudi.Catalog(name)",
    "write_deltalake": "pyhudi.write(path, rows, mode=...)",
    "write_table": "pyhudi.write(path, rows, mode=...)",
    "read": "pyhudi.Table(uri).scan()",
    "read_table": "pyhudi.Table(uri).scan()",
    "read_hudi": "pyhudi.Table(uri).scan()",
    "scan": "pyhudi.scan_polars(uri) or pyhudi.Table(uri).scan()",
    "scan_delta": "pyhudi.scan_polars(uri)",
    "scan_hudi": "pyhudi.scan_polars(uri)",
    "create_table": "pyhudi.Table.create(uri, record_key=...)",
    "convert_to_deltalake": "pyhudi.bootstrap(source, target)",
}

_ARGUMENTS = {
    "version": "pass as_of=, an instant or a time",
    "snapshot_id": "pass as_of=, an instant or a time",
    "timestamp": "pass as_of=, an instant or a time",
    "predicate": "pass where=",
    "row_filter": "pass filter=",
    "selected_fields": "pass columns=",
    "storage_properties": "pass storage_options=",
    "configuration": "pass options=",
    "conf": "pass options=",
    "updates": "pass set= for SQL expressions, values= for Python values",
    "new_values": "pass values=",
    "partition_cols": "pass partition_by=",
    "primary_key": "pass record_key=",
    "precombine": "pass ordering=",
    "location": "pass uri=",
    "commit_properties": "pass commit_metadata=",
    "snapshot_properties": "pass commit_metadata=",
}


class ForeignNames:
    """Base of public classes: the error of a missing attribute names its equivalent."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(missing_attribute_message(type(self).__name__, name), name=name, obj=self)


def missing_attribute_message(class_name: str, name: str) -> str:
    """Message for a missing attribute of an object of this type, with its equivalent if there is one."""
    hint = _HINTS.get(class_name, {}).get(name)
    return f"{class_name!r} object has no attribute {name!r}" + (f": use .{hint}" if hint else "")


def missing_name_message(name: str) -> str:
    """Message for a missing name of the package, with its equivalent if there is one."""
    hint = _MODULE.get(name)
    return f"module 'pyhudi' has no attribute {name!r}" + (f": use {hint}" if hint else "")


def foreign_argument_hint(name: str) -> str | None:
    """The equivalent of an argument of other libraries."""
    return _ARGUMENTS.get(name)

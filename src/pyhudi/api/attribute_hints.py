"""Names of delta-rs, PyIceberg, Hudi and Spark, and their equivalents here. Source: docs/migrate-from-delta-and-iceberg.md."""

from __future__ import annotations

_THERE = {
    "vacuum": "clean(dry_run=False)",
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
    "expire_snapshots": "clean(dry_run=False)",
    "metadata": "inspect",
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
    "updates": "pass set=",
    "new_values": "pass set=",
    "partition_cols": "pass partition_by=",
    "primary_key": "pass record_key=",
    "precombine": "pass ordering=",
    "location": "pass uri=",
}


def missing_attribute_message(kind: str, name: str) -> str:
    """Message for a missing attribute of an object of this type, with its equivalent if there is one."""
    message = f"{kind!r} object has no attribute {name!r}"
    return f"{message}: use .{_THERE[name]}" if name in _THERE else message


def foreign_argument_hint(name: str) -> str | None:
    """The equivalent of an argument of other libraries."""
    return _ARGUMENTS.get(name)

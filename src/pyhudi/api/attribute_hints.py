"""Names of delta-rs and PyIceberg methods, and their equivalents here. Source: docs/migrate-from-delta-and-iceberg.md."""

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


def missing_attribute_message(kind: str, name: str) -> str:
    """Message for a missing attribute of an object of this type, with its equivalent if there is one."""
    message = f"{kind!r} object has no attribute {name!r}"
    return f"{message}: use .{_THERE[name]}" if name in _THERE else message

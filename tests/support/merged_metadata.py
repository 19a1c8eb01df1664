"""Merge rules of metadata records, one pair of Python values at a time: the reference for the columnar merges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyhudi.errors import CorruptData


@dataclass(frozen=True, slots=True)
class FileEntry:
    """State of one file in a record. A deleted file has size 0."""

    size_bytes: int
    is_deleted: bool = False


def merge_file_lists(older: Mapping[str, FileEntry], newer: Mapping[str, FileEntry]) -> dict[str, FileEntry]:
    """Merge two records of one key by the table in `metadata_table.codecs.files_codec`."""
    merged = dict(older)
    for name, entry in newer.items():
        older_entry = older.get(name)
        if not entry.is_deleted:
            size = entry.size_bytes if older_entry is None else max(older_entry.size_bytes, entry.size_bytes)
            merged[name] = FileEntry(size)
        elif older_entry is None or older_entry.is_deleted:
            merged[name] = FileEntry(0, True)
        else:
            del merged[name]
    return merged


@dataclass(frozen=True, slots=True)
class ColumnStatsRecord:
    """One statistics record with comparable Python bounds. Both bounds are None if every value is null."""

    file_name: str
    column_name: str
    min: Any
    max: Any
    value_count: int | None
    null_count: int | None
    total_size_bytes: int | None
    total_uncompressed_size_bytes: int | None
    is_deleted: bool = False
    is_tight: bool = False


def merge_column_stats(older: ColumnStatsRecord, newer: ColumnStatsRecord) -> ColumnStatsRecord:
    """Merge two records of one key.

    Raises:
        CorruptData: The records belong to different columns.
    """
    if older.column_name != newer.column_name:
        raise CorruptData(
            "two columns share one key in the column statistics", expected=older.column_name, found=newer.column_name
        )
    if older.is_deleted or newer.is_deleted or newer.is_tight:
        return newer
    return ColumnStatsRecord(
        newer.file_name,
        newer.column_name,
        min((bound for bound in (older.min, newer.min) if bound is not None), default=None),
        max((bound for bound in (older.max, newer.max) if bound is not None), default=None),
        _sum_or_none(older.value_count, newer.value_count),
        _sum_or_none(older.null_count, newer.null_count),
        _sum_or_none(older.total_size_bytes, newer.total_size_bytes),
        _sum_or_none(older.total_uncompressed_size_bytes, newer.total_uncompressed_size_bytes),
    )


def _sum_or_none(first: int | None, second: int | None) -> int | None:
    return None if first is None and second is None else (first or 0) + (second or 0)

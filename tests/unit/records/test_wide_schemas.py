"""Schemas with thousands of columns: lookups per column are not linear."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from pyhudi.errors import InvalidRequest
from pyhudi.metadata_table.indexes import column_stats_index as module
from pyhudi.metadata_table.indexes.column_stats_index import indexed_columns
from pyhudi.records.dotted_columns import field_at

WIDE = pa.schema([(f"c{number}", pa.struct([("x", pa.int64())]) if number % 2 else pa.int32()) for number in range(3_000)])


class NotWalked:
    """A schema that returns a field by its name or position, and does not allow iteration."""

    def get_field_index(self, name: str) -> int:
        return WIDE.get_field_index(name)

    def field(self, place: int) -> pa.Field:
        return WIDE.field(place)

    def __iter__(self) -> Iterator[pa.Field]:
        raise AssertionError("all columns were looked at")


def test_field_lookup_does_not_scan_all_fields() -> None:
    schema: pa.Schema = NotWalked()  # type: ignore[assignment]
    assert field_at(schema, "c2998") == WIDE.field("c2998")
    assert field_at(schema, "c2999.x").type == pa.int64()
    with pytest.raises(InvalidRequest, match="not a struct"):
        field_at(schema, "c2998.x")
    # What is not there may be looked for anywhere, to name what is near.
    with pytest.raises(InvalidRequest, match="did you mean 'c2998'"):
        field_at(WIDE, "C2998")


def test_statistics_support_is_checked_only_for_selected_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(schema: pa.Schema, name: str) -> pa.Field:
        asked.append(name)
        return field_at(schema, name)

    monkeypatch.setattr(module, "field_at", counted)
    chosen = indexed_columns(WIDE, max_columns=32, with_meta_columns=False)
    assert chosen == tuple(f"c{2 * number}" for number in range(32))
    assert len(asked) == 63

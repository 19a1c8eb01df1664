"""Positions of key-value metadata in footers of every form, and in invalid ones."""

from __future__ import annotations

import datetime
import io
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq

from pyhudi.format.parquet.key_value_metadata import text_spans

KEYS = frozenset({b"long", b"short", b"empty", b"absent"})
TEXTS = {"a": "x" * 200, "long": "y" * 70_000, "short": "z", "empty": ""}


def footer_of(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, row_group_size=3, sorting_columns=[pq.SortingColumn(0)])  # type: ignore[attr-defined]
    data = sink.getvalue()
    return data[-8 - int.from_bytes(data[-8:-4], "little") :]


def rows() -> pa.Table:
    return pa.table(
        {
            "n": list(range(10)),
            "nested": [{"list": [1.5, None], "flag": True}] * 10,
            "decimal": [Decimal("1.25")] * 10,
            "day": [datetime.date(2024, 1, 2)] * 10,
            "at": [datetime.datetime(2024, 1, 2)] * 10,
            **{f"more_{number}": [b"bytes"] * 10 for number in range(20)},
        }
    )


def found(footer: bytes) -> dict[str, str]:
    return {key.decode(): footer[at.start : at.end].decode() for key, at in text_spans(footer, KEYS).items()}


def test_text_spans_are_found() -> None:
    footer = footer_of(rows().replace_schema_metadata(TEXTS))
    assert found(footer) == {key: text for key, text in TEXTS.items() if key != "a"}
    place = text_spans(footer, KEYS)[b"long"]
    assert place.start - place.head == 3
    assert found(footer_of(rows())) == {}
    assert found(footer_of(rows().replace_schema_metadata({"a": "b"}))) == {}


def test_duplicate_metadata_key_is_skipped() -> None:
    footer = footer_of(rows().replace_schema_metadata({"long": "y" * 300, "lone": "y" * 300}))
    assert found(footer.replace(b"lone", b"long")) == {}


def test_damaged_footer_has_no_key_value_metadata() -> None:
    footer = footer_of(rows().select(["n", "nested"]).slice(0, 4).replace_schema_metadata({"short": "z", "a": "b"}))
    for end in range(0, len(footer), 5):
        assert set(found(footer[:end])) <= {"short"}
    for at in range(len(footer)):
        damaged = bytearray(footer)
        damaged[at] ^= 1 << at % 8
        for place in text_spans(bytes(damaged), KEYS).values():
            assert 0 < place.head < place.start <= place.end <= len(footer)

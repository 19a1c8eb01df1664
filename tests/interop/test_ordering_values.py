"""Ordering values of every type order records and deletes alike in PyHudi and Apache Hudi."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from tests.interop.oracle import ApacheHudi
from tests.support.rows import assert_same_rows

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("qty", pa.int32()), ("name", pa.string())])
OPTIONS: dict[str, Any] = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.compact.inline": False,
    "hoodie.embed.timeline.server": False,
}


def rows(*values: tuple[str, int, int | None, str | None]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, value, strict=True)) for value in values], SCHEMA)


def test_both_releases_order_records_of_our_tables_of_version_8(hudi: ApacheHudi, newer_hudi: ApacheHudi, tmp_path: Path) -> None:
    """Each by the key that it knows: no writer gets the ordering field as an option, and late records lose."""
    path = tmp_path / "t"

    def at(*values: tuple[str, int, int | None, str | None]) -> pa.Table:
        return rows(*values).rename_columns(["id", "at", "qty", "name"])

    options = {key: value for key, value in OPTIONS.items() if "precombine" not in key}
    table = Table.create(path, name="t", record_key="id", ordering="at", table_type="mor")
    table.upsert(at(("a", 5, 1, "x"), ("b", 5, 2, "y"), ("c", 5, 3, "z")))
    expected = {"a": "x", "b": "y", "c": "z"}
    for real, key, own in ((hudi, "b", {}), (newer_hudi, "c", {"hoodie.write.auto.upgrade": False})):
        real.write(at(("a", 1, 9, "late"), (key, 6, 9, "newer")), path, **{**options, **own})
        expected[key] = "newer"
        found = table.scan(["*"]).to_arrow()
        assert dict(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True)) == expected
        for reader in (hudi, newer_hudi):
            assert_same_rows(found, reader.read(path))
    assert table.config.version == 8 and table.validate().ok


MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=datetime.UTC)
ORDERINGS: dict[str, dict[str, tuple[pa.DataType, Callable[[int], Any]]]] = {
    "decimal": {"o": (pa.decimal128(10, 2), lambda n: Decimal(n) / 4)},
    "timestamp": {"o": (pa.timestamp("us", "UTC"), lambda n: MOMENT + datetime.timedelta(microseconds=n))},
    "text": {"o": (pa.string(), lambda n: f"v{n:02d}")},
    "double": {"o": (pa.float64(), lambda n: n / 8)},
    "timestamp_and_decimal": {
        "o": (pa.timestamp("us", "UTC"), lambda n: MOMENT + datetime.timedelta(microseconds=n // 10)),
        "p": (pa.decimal128(10, 2), lambda n: Decimal(n % 10) / 4),
    },
    # Each decides between some of the numbers below.
    "all_of_them": {
        "o": (pa.timestamp("us", "UTC"), lambda n: MOMENT + datetime.timedelta(microseconds=n // 20)),
        "p": (pa.float64(), lambda n: n // 25 / 8),
        "q": (pa.string(), lambda n: f"v{n // 26:02d}"),
        "r": (pa.decimal128(10, 2), lambda n: Decimal(n) / 4),
    },
}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in ("decimal", "all_of_them") else pytest.mark.wide) for kind in ORDERINGS]
)
def test_ordering_values_of_every_type_in_rows_and_deletes(newer_hudi: ApacheHudi, tmp_path: Path, kind: str) -> None:
    """Each writes deletes and rows, earlier and later ones, over those of the other."""
    path, fields = tmp_path / "t", ORDERINGS[kind]
    types = {"id": pa.string(), "_hoodie_is_deleted": pa.bool_(), "name": pa.string(), **{n: t for n, (t, _) in fields.items()}}

    def at(*values: tuple[str, int, bool, str]) -> pa.Table:
        made = [
            {"id": key, "_hoodie_is_deleted": gone, "name": name, **{field: value(n) for field, (_, value) in fields.items()}}
            for key, n, gone, name in values
        ]
        return pa.Table.from_pylist(made, pa.schema(types))

    options = {**OPTIONS, "hoodie.datasource.write.precombine.field": ",".join(fields)}
    options = {**options, "hoodie.write.table.version": 9}
    table = Table.create(path, options={**options, "hoodie.datasource.write.table.type": "MERGE_ON_READ"})
    table.upsert(at(*((key, 25, False, "base") for key in "abcdefgh")))
    newer_hudi.write(
        at(
            ("a", 26, True, "gone"),
            ("b", 24, True, "late"),
            ("c", 27, False, "c27"),
            ("d", 27, True, "gone"),
            ("e", 27, True, "x"),
        ),
        path,
        **options,
    )
    table.upsert(
        at(
            ("a", 25, False, "late"),
            ("c", 28, True, "gone"),
            ("d", 28, False, "back"),
            ("f", 26, True, "gone"),
            ("g", 24, True, "l"),
        )
    )
    newer_hudi.write(
        at(("c", 27, False, "late"), ("f", 27, False, "back"), ("g", 26, True, "gone"), ("e", 1, True, "l")), path, **options
    )
    found = table.scan(["*"]).to_arrow()
    names = dict(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True))
    assert names == {"b": "base", "d": "back", "f": "back", "h": "base"}
    assert_same_rows(found, newer_hudi.read(path))
    assert table.validate().ok
    table.compact()
    assert_same_rows(table.scan(["*"]).to_arrow(), newer_hudi.read(path))

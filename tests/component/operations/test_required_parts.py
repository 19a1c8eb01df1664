"""Nullable structs with NOT NULL fields, also inside lists, maps and structs, in every operation."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table

_names = itertools.count()

PART = pa.struct([pa.field("x", pa.int64(), False), pa.field("y", pa.string())])
SHAPES: dict[str, pa.DataType] = {
    "struct": PART,
    "list": pa.list_(pa.field("element", PART)),
    "map": pa.map_(pa.string(), PART),
    "required_items": pa.list_(pa.field("element", PART, False)),
    "required_list": pa.struct([pa.field("items", pa.list_(pa.field("element", PART)), False)]),
    "deep": pa.struct([pa.field("inner", pa.struct([pa.field("part", PART, False)])), pa.field("n", pa.int32(), False)]),
}


def part(x: int) -> dict[str, Any]:
    return {"x": x, "y": None if x % 3 == 0 else f"y{x}"}


def values(x: int | None) -> dict[str, Any]:
    """A value of each shape; None gives the emptiest ones."""
    held = None if x is None else part(x)
    return {
        "struct": held,
        "list": [None, held] if held else None,
        "map": [("none", None), ("some", held)] if held else None,
        "required_items": [held] if held else None,
        "required_list": {"items": [held, None]} if held else None,
        "deep": {"inner": {"part": held} if held else None, "n": 1} if x is None or x % 2 else None,
    }


class Model:
    """A table with a column of each shape, and what it should hold."""

    columns = pa.schema(
        [
            pa.field("id", pa.string(), False),
            *(pa.field(name, kind) for name, kind in [("p", pa.string()), ("ts", pa.int64()), ("n", pa.int64())]),
            *(pa.field(name, kind) for name, kind in SHAPES.items()),
        ]
    )

    def __init__(self, table_type: str = "mor", /, **options: object) -> None:
        self.table = Table.create(
            f"memory://required-{next(_names)}",
            name="t",
            record_key="id",
            partition_by="p",
            ordering="ts",
            table_type=table_type,
            schema=self.columns,
            options={
                "hoodie.compact.inline": False,
                "hoodie.log.compaction.blocks.threshold": 2,
                "hoodie.index.bloom.num_entries": 100,
                "hoodie.parquet.small.file.limit": 0,
                **options,
            },
        )
        self.rows: dict[str, dict[str, Any]] = {}

    def data(self, ts: int, parts: dict[str, int | None], p: str = "a") -> pa.Table:
        rows = [{"id": key, "p": p, "ts": ts, "n": ts, **values(x)} for key, x in parts.items()]
        self.rows.update({str(row["id"]): row for row in rows})
        return pa.Table.from_pylist(rows, self.columns)

    def upsert(self, ts: int, parts: dict[str, int | None], p: str = "a") -> None:
        self.table.upsert(self.data(ts, parts, p))

    def delete(self, *keys: str) -> None:
        self.table.delete(pa.table({"id": list(keys), "p": [self.rows[key]["p"] for key in keys]}))
        for key in keys:
            del self.rows[key]

    def check(self) -> None:
        found = self.table.scan().to_arrow()
        assert found.schema.equals(self.columns)
        assert sorted(found.to_pylist(), key=lambda row: str(row["id"])) == [self.rows[key] for key in sorted(self.rows)]


def filled(model: Model) -> Model:
    """Rows in base files, and in merge on read updates, nulls and deletes in two logs."""
    model.upsert(1, {"a": 1, "b": None, "c": 3, "d": 5})
    model.upsert(2, {"a": None, "b": 7, "e": None})
    model.delete("d")
    model.upsert(3, {"c": None, "f": 9})
    return model


@pytest.mark.sample(1)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_writes_reads_and_services(table_type: str) -> None:
    model = filled(Model(table_type))
    model.check()
    model.table.delete(where="id = 'f'")
    del model.rows["f"]
    model.check()
    assert model.table.incremental("0").to_arrow().num_rows == len(model.rows)
    if table_type == "mor":
        model.table.log_compact()
        model.check()
        model.upsert(5, {"g": 11, "b": None})
        model.table.compact()
        model.check()
    model.table.cluster()
    model.check()


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_change_data(table_type: str) -> None:
    model = filled(Model(table_type, **{"hoodie.table.cdc.enabled": True}))
    model.check()
    found: dict[str, Any] = {}
    for change in model.table.changes("0", typed=True).to_arrow().to_pylist():
        if change["after"] is None:
            assert found.pop(change["before"]["id"]) == change["before"]
        else:
            found[change["after"]["id"]] = change["after"]
    assert found == model.rows


@pytest.mark.sample(1)
@pytest.mark.parametrize("mode", ["COMMIT_TIME_ORDERING", "EVENT_TIME_ORDERING"])
def test_partial_updates(mode: str) -> None:
    model = filled(Model(**{"hoodie.write.record.merge.mode": mode}))
    before = {key: dict(row) for key, row in model.rows.items()}
    model.table.upsert(model.data(8, {"a": None, "b": None}).select(["id", "p", "ts", "n"]), partial=True)
    for key in ("a", "b"):
        model.rows[key] = {**before[key], "ts": 8, "n": 8}
    model.check()
    before = {key: dict(row) for key, row in model.rows.items()}
    model.table.upsert(model.data(9, {"a": 13, "c": None}).select(["id", "p", "ts", *SHAPES]), partial=True)
    for key in ("a", "c"):
        model.rows[key]["n"] = before[key]["n"]
    model.check()
    model.table.log_compact()
    model.check()
    model.table.compact()
    model.check()


@pytest.mark.parametrize("payload", ["OverwriteNonDefaultsWithLatestAvroPayload", "PartialUpdateAvroPayload"])
def test_payloads_that_fill_nulls(payload: str) -> None:
    name = f"org.apache.hudi.common.model.{payload}"
    model = filled(Model(**{"hoodie.datasource.write.payload.class": name}))
    for key, x in (("a", 1), ("c", 3)):
        model.rows[key].update({shape: value for shape, value in values(x).items() if model.rows[key][shape] is None})
    model.check()
    model.table.compact()
    model.check()


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_records_that_move(table_type: str) -> None:
    index = {"hoodie.index.type": "GLOBAL_BLOOM", "hoodie.bloom.index.update.partition.path": True}
    model = filled(Model(table_type, **index))
    model.upsert(7, {"a": 1, "b": None}, "z")
    model.check()


@pytest.mark.parametrize("option", [{"hoodie.populate.meta.fields": False}, {"hoodie.logfile.data.block.format": "parquet"}])
def test_virtual_keys_and_parquet_blocks(option: dict[str, object]) -> None:
    model = filled(Model(**option))
    model.check()
    model.table.compact()
    model.check()


def test_fields_that_come_in_marked_as_null_where_their_struct_is() -> None:
    """Columns in a layout of programs other than Arrow's own builders."""
    model = Model("cow")
    parts = pa.array([part(1)], PART).take(pa.array([None, 0]))
    assert parts.field(0).null_count == 1
    rows = model.data(1, {"a": None, "b": 1})
    model.table.upsert(rows.set_column(4, model.columns.field("struct"), parts))
    model.check()

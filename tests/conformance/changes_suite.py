"""Updates and merges on each engine.

A test class inherits `ChangesSuite` and supplies its engine. Conditions and values mean the same on both engines:
filters, literals and columns.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi import Table
from pyhudi.api.table import Merge
from pyhudi.errors import InvalidRequest
from pyhudi.operations.commit.results import WriteResult

OPTIONS = {"hoodie.metadata.enable": False, "hoodie.table.services.enabled": False, "pyhudi.threads": 1}
_names = itertools.count()


def rows(*records: tuple[Any, ...]) -> pa.Table:
    """Columns id, city, ts, fare."""
    columns = [list(column) for column in zip(*records, strict=True)] if records else [[], [], [], []]
    kinds = (pa.string(), pa.string(), pa.int64(), pa.float64())
    return pa.table(
        [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)], names=["id", "city", "ts", "fare"]
    )


def new_table(kind: str = "cow", data: pa.Table | None = None, uri: str | None = None, **settings: Any) -> Table:
    """Of three rows a and c are in one partition, b in another; c has no fare."""
    table = table_without_columns(uri, table_type=kind, **settings)
    table.upsert(rows(("a", "x", 1, 1.0), ("b", "y", 2, 2.0), ("c", "x", 3, None)) if data is None else data)
    return table


def table_without_columns(uri: str | None = None, **settings: Any) -> Table:
    """A table that has no commit yet, created without a schema."""
    named = {"record_key": "id", "partition_by": "city", "ordering": "ts", "options": OPTIONS, **settings}
    return Table.create(uri or f"memory://changes-{next(_names)}/t", **named)


def held(table: Table, *columns: str) -> dict[str, Any]:
    """The values of some columns by record."""
    found = table.scan(["id", *columns]).to_arrow().to_pylist()
    return {row["id"]: tuple(row[name] for name in columns) if len(columns) > 1 else row[columns[0]] for row in found}


SOURCE = rows(("a", "x", 5, 10.0), ("b", "y", 6, None), ("z", "w", 7, 30.0))


class QueryForm:
    """How to query an engine. kind: cow or mor."""

    @pytest.fixture(params=["cow", "mor"])
    def kind(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture
    def table(self, kind: str) -> Table:
        return self.new_table(kind)

    def new_table(self, kind: str = "cow", **settings: Any) -> Table:
        return new_table(kind, **settings)

    def table_without_columns(self) -> Table:
        return table_without_columns()

    def update(self, table: Table, values: Mapping[str, Any], where: Any = None, **settings: Any) -> WriteResult:
        raise NotImplementedError

    def merge(self, table: Table, source: pa.Table, on: Any, **settings: Any) -> Merge:
        raise NotImplementedError


class ChangesSuite(QueryForm):
    """What each engine does in its own way."""

    def test_an_update_changes_the_rows_of_its_filter(self, table: Table) -> None:
        result = self.update(table, {"fare": 9}, where="ts >= 2")
        assert (result.rows_updated, result.rows_inserted, result.rows_deleted) == (2, 0, 0)
        assert held(table, "city", "ts", "fare") == {"a": ("x", 1, 1.0), "b": ("y", 2, 9.0), "c": ("x", 3, 9.0)}
        self.update(table, {"fare": "NULL"})
        assert held(table, "fare") == {"a": None, "b": None, "c": None}

    def test_update_with_an_earlier_ordering_value_is_ignored(self, table: Table) -> None:
        self.update(table, {"ts": 0, "fare": 7})
        assert held(table, "ts", "fare") == {"a": (1, 1.0), "b": (2, 2.0), "c": (3, None)}
        self.update(table, {"ts": 9, "fare": 7}, where="id = 'a'")
        assert held(table, "ts", "fare")["a"] == (9, 7.0)

    def test_a_table_without_meta_columns(self) -> None:
        plain = self.new_table(options={**OPTIONS, "hoodie.populate.meta.fields": False})
        self.update(plain, {"fare": 8}, where="id = 'b'")
        self.merge(plain, rows(("c", "x", 9, 4.0)), on="id").when_matched_update_all().execute()
        assert held(plain, "fare") == {"a": 1.0, "b": 8.0, "c": 4.0}

    def test_the_first_clause_whose_condition_holds_counts(self, table: Table) -> None:
        merge = (
            self.merge(table, SOURCE, on="id").when_matched_delete("target.fare = 2 AND source.ts > 5").when_matched_update_all()
        )
        result = merge.when_not_matched_insert_all().execute()
        assert (result.rows_inserted, result.rows_updated, result.rows_deleted) == (1, 1, 1)
        assert held(table, "city", "ts", "fare") == {"a": ("x", 5, 10.0), "c": ("x", 3, None), "z": ("w", 7, 30.0)}
        assert len(table.timeline().completed_writes()) == 2

    def test_merge_delete_ignores_ordering_values(self, table: Table) -> None:
        self.merge(table, pa.table({"id": ["a", "c", "z"]}), on="id").when_matched_delete().execute()
        assert set(held(table, "ts")) == {"b"}
        table.upsert(rows(("a", "x", 1, 4.0)))
        assert held(table, "fare") == {"a": 4.0, "b": 2.0}

    def test_merge_delete_by_an_older_source_row_keeps_the_record(self, table: Table) -> None:
        source = rows(("a", "x", 0, 9.0), ("b", "y", 2, None), ("c", "x", None, 9.0))
        merge = self.merge(table, source, on="id").when_matched_delete().when_matched_update({"fare": 7})
        assert merge.execute().rows_deleted == 2
        assert held(table, "fare") == {"a": 1.0}
        plain = self.new_table(ordering=None)
        self.merge(plain, source, on="id").when_matched_delete().execute()
        assert held(plain, "fare") == {}

    def test_merge_delete_compares_several_ordering_fields(self, kind: str) -> None:
        data = rows(("a", "x", 1, 1.0), ("b", "y", 2, 2.0), ("c", "x", 3, 3.0))
        options = {**OPTIONS, "hoodie.write.table.version": 9}
        table = self.new_table(kind, data=data, ordering=["ts", "fare"], options=options)
        source = rows(("a", "x", 1, 0.5), ("b", "y", 2, 3.0), ("c", "x", 4, None))
        self.merge(table, source, on="id").when_matched_delete().execute()
        assert set(held(table, "ts")) == {"a"}

    def test_a_deleted_record_needs_no_ordering_value(self) -> None:
        table = self.new_table()
        table.bulk_insert(rows(("n", "x", None, 1.0)))
        self.merge(table, pa.table({"id": ["n", "a"]}), on="id").when_matched_delete().execute()
        assert set(held(table, "ts")) == {"b", "c"}

    def test_a_row_is_not_inserted_by_a_null_that_matches_nothing(self, kind: str) -> None:
        """The record with that null may be there: it would be overwritten."""
        table = self.new_table(
            kind, record_key=["id", "city"], partition_by=[], data=rows(("a", None, 1, 1.0), ("b", "y", 1, 1.0))
        )
        source = rows(("a", None, 5, 5.0), ("b", "y", 5, 5.0))
        merge = self.merge(table, source, on=["id", "city"]).when_matched_update_all()
        with pytest.raises(InvalidRequest, match="null in id, city, which matches nothing"):
            merge.when_not_matched_insert_all().execute()
        assert held(table, "ts") == {"a": 1, "b": 1}
        merge = self.merge(table, source, on=["id", "city"]).when_matched_update_all()
        merge.when_not_matched_insert_all(where="source.city is not null").execute()
        assert held(table, "ts") == {"a": 1, "b": 5}

    def test_the_first_merge_gives_a_table_its_columns(self) -> None:
        table = self.table_without_columns()
        merge = self.merge(table, SOURCE, on="id").when_matched_update_all().when_not_matched_insert_all("source.fare > 0")
        assert merge.execute().rows_inserted == 2
        assert table.schema() == SOURCE.schema
        assert held(table, "city", "fare") == {"a": ("x", 10.0), "z": ("w", 30.0)}

    def test_python_values_together_with_expressions(self, table: Table) -> None:
        self.update(table, {"ts": "ts + 1", "fare": hp.lit(7)}, where="id = 'a'")
        merge = self.merge(table, SOURCE, on="id").when_matched_update({"fare": hp.lit(8), "ts": "source.ts"}, "source.id = 'b'")
        merge.when_not_matched_insert({"id": "source.id", "city": hp.lit("2025-01-01"), "ts": 1}).execute()
        assert held(table, "city", "ts", "fare") == {
            "a": ("x", 2, 7.0), "b": ("y", 6, 8.0), "c": ("x", 3, None), "z": ("2025-01-01", 1, None),
        }  # fmt: skip

    def test_columns_of_the_source_that_the_table_lacks(self) -> None:
        table = self.new_table(data=rows(("a", "x", 1, 1.0)).append_column("n", pa.array([1], pa.int32())))
        source = SOURCE.append_column("n", pa.array([7, 2, 3])).append_column("extra", pa.array(["e", "f", "g"]))
        self.merge(table, source, on="id").when_matched_update({"fare": "source.fare"}).execute()
        assert table.schema().names == ["id", "city", "ts", "fare", "n"]
        with pytest.raises(InvalidRequest, match="extra"):
            self.merge(table, source, on="id", schema_mode="strict").when_matched_update_all().execute()
        result = self.merge(table, source, on="id").when_matched_update_all().execute()
        assert result.schema_changes == ("extra string is new",)
        assert held(table, "n", "extra") == {"a": (7, "e")}

    def test_rows_that_the_source_does_not_match(self, table: Table) -> None:
        merge = self.merge(table, SOURCE.slice(0, 1), "id").when_matched_update({"fare": "source.fare"})
        merge = merge.when_not_matched_by_source_delete("target.fare = 2").when_not_matched_by_source_update(
            {"fare": "target.ts"}
        )
        result = merge.execute()
        assert (result.rows_inserted, result.rows_updated, result.rows_deleted) == (0, 2, 1)
        assert held(table, "ts", "fare") == {"a": (1, 10.0), "c": (3, 3.0)}
        self.merge(table, SOURCE.slice(2), "id").when_not_matched_insert_all().when_not_matched_by_source_delete().execute()
        assert held(table, "city", "fare") == {"z": ("w", 30.0)}

    def test_merge_without_clauses_or_with_unknown_columns_is_refused(self) -> None:
        table = self.new_table()
        for change, said in (
            (lambda: self.merge(table, SOURCE, "id").execute(), "without clauses"),
            (lambda: self.merge(table, SOURCE, ["nothing"]).when_matched_delete().execute(), "nothing"),
            (lambda: self.merge(table, SOURCE, []), "empty"),
            (lambda: self.update(table, {"nothing": 1}), "nothing"),
            (lambda: self.update(table, {}), "assigns no column"),
        ):
            with pytest.raises(InvalidRequest, match=said):
                change()
        assert len(table.timeline().completed_writes()) == 1


class PlainChangesSuite(QueryForm):
    """What follows from the meaning of conditions and values alone."""

    def test_a_null_in_a_condition_is_unknown(self, table: Table) -> None:
        self.update(table, {"fare": 5}, where="NOT fare > 1.5")
        assert held(table, "fare") == {"a": 5.0, "b": 2.0, "c": None}

    def test_a_column_is_copied(self, table: Table) -> None:
        self.update(table, {"fare": "ts"}, where="fare IS NULL")
        assert held(table, "fare") == {"a": 1.0, "b": 2.0, "c": 3.0}

    def test_update_that_matches_no_row_changes_nothing(self, table: Table) -> None:
        before = held(table, "city", "ts", "fare")
        deleted, updated = table.delete(where="ts > 50"), self.update(table, {"fare": 0}, where="ts > 50")
        assert (updated.instant is None) == (deleted.instant is None)
        assert not updated.rows_updated and held(table, "city", "ts", "fare") == before
        quiet = {"hoodie.allow.empty.commit": False}
        assert self.update(table, {"fare": 0}, where="ts > 50", options=quiet).instant is None

    def test_a_null_in_the_condition_of_a_clause_is_unknown(self, table: Table) -> None:
        merge = self.merge(table, SOURCE, on="id").when_matched_update({"fare": "source.fare"}, where="NOT source.fare = 3")
        merge.when_not_matched_insert_all(where="source.fare < 30").execute()
        assert held(table, "fare") == {"a": 10.0, "b": 2.0, "c": None}

    def test_values_come_from_both_sides(self, table: Table) -> None:
        merge = self.merge(table, SOURCE, on=["id", "city"]).when_matched_update({"fare": "target.ts", "ts": "source.ts"})
        merge.when_not_matched_insert({"id": "source.id", "city": "source.city", "ts": 1}).execute()
        assert held(table, "ts", "fare") == {"a": (5, 1.0), "b": (6, 2.0), "c": (3, None), "z": (1, None)}

    def test_a_source_without_rows_or_without_a_match(self, table: Table) -> None:
        before = held(table, "city", "ts", "fare")
        quiet = {"hoodie.allow.empty.commit": False}
        for source in (SOURCE.slice(0, 0), SOURCE.slice(2)):
            assert self.merge(table, source, on="id", options=quiet).when_matched_update_all().execute().instant is None
        assert held(table, "city", "ts", "fare") == before

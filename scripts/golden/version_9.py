"""The cases of release 1.1.1, behind all others: table version 9 in all its ways to merge and to index, and older versions.

Traits beside those of `cases`:
    v9                            table version 9
    no_partitions                 the table has none (else by city)
    by_1_1                        another table version, written by release 1.1.1
    two_ordering_fields           tuples as ordering values
    avro_types                    enums, and timestamps of milliseconds
    delete_marker, fills          a column that marks deletes; a partial update mode
    indexes, partitioned_record_index                   secondary and expression indexes; a record index for each partition
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa

from scripts.golden.cases import (
    CASES,
    COMPACTION_AFTER,
    INLINE_COMPACTION,
    KEY,
    MOR,
    NO_SERVICES,
    ORDERING,
    PARTITION,
    TYPE,
    case,
    rows_of_every_type,
    trips,
)
from scripts.golden.maker import SMALL_FILES, Case, Maker

__all__ = ["CASES"]

NEWER = "1.1.1"
PAYLOAD = "hoodie.datasource.write.payload.class"
PARQUET_LOGS = {"hoodie.logfile.data.block.format": "parquet"}
LOCKED = {
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.clean.failed.writes.policy": "LAZY",
}
MODEL = "org.apache.hudi.common.model."


def _merge_on_read(table: Maker, **more: object) -> None:
    table.options = {KEY: "id", ORDERING: "ts", PARTITION: "city", TYPE: MOR, INLINE_COMPACTION: False, **NO_SERVICES, **more}


# -- logs and deletes ---------------------------------------------------------------------------------------------------


def _marked(rows: pa.Table, *deleted: bool) -> pa.Table:
    return rows.append_column("_hoodie_is_deleted", pa.array(deleted or [False] * rows.num_rows))


@case("logs of version 9: late rows, ties, deletes with and without an ordering value, and rows that come back", "mor",
      "event_time", "avro_log", "v9", "deletes", release=NEWER)  # fmt: skip
def mor_v9(table: Maker) -> None:
    _merge_on_read(table)
    _delete_and_return(table)


@case("Parquet logs of version 9: the same writes as mor_v9", "mor", "event_time", "parquet_log", "v9", "deletes", release=NEWER)
def mor_v9_parquet(table: Maker) -> None:
    _merge_on_read(table, **PARQUET_LOGS)
    _delete_and_return(table)


def _delete_and_return(table: Maker) -> None:
    table.write(_marked(trips(range(15), 5)), "insert")
    table.write(_marked(trips((0, 1, 2, 9), 6)), "delete")
    # 3 is deleted by a newer row, 4 is not by an older one.
    table.write(_marked(trips((3, 4, 5), 7, fare=100.0), True, False, False))
    table.write(_marked(trips((4, 6), 1, fare=150.0), True, False))
    # After a delete without an ordering value any row counts again: 0 is newer than the base row, 1 older, so that the base row
    # comes back; 3 was deleted with an ordering value that is larger.
    table.write(_marked(trips((0, 1, 3), 6, fare=200.0)))
    table.write(_marked(trips((1, 2), 3, fare=300.0)))
    table.write(_marked(trips((3, 20), 9, fare=400.0)))
    times = [instant.completion_time or "" for instant in table.timeline()]
    requests = [instant.request_time for instant in table.timeline()]
    table.expect()
    table.expect_read_optimized()
    table.expect_as_of("as_of_delete", requests[1])
    table.expect_as_of("as_of_fourth", requests[3])
    # The first bound is left out.
    table.expect_incremental("incremental_after_second", times[1])
    table.expect_incremental("incremental_third", times[1], times[2])


@case("version 9 by commit time although an ordering field is set; deletes by a row and by the operation", "mor", "commit_time",
      "avro_log", "v9", "deletes", release=NEWER)  # fmt: skip
def mor_v9_commit_time(table: Maker) -> None:
    _merge_on_read(table, **{"hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING"})
    table.write(_marked(trips(range(9), 5)), "insert")
    table.write(_marked(trips((0, 1, 2), 1, fare=100.0), False, True, False))
    table.write(_marked(trips((3, 4), 0)), "delete")
    table.write(_marked(trips((1, 4), 2, fare=200.0)))
    table.expect()


@case("an int column as ordering field of version 9: 0 and null are no ordering values of deletes", "mor", "event_time",
      "avro_log", "v9", "deletes", "no_partitions", release=NEWER)  # fmt: skip
def mor_v9_int_ordering(table: Maker) -> None:
    _merge_on_read(table, **{PARTITION: None})

    def rows(*values: tuple[str, int | None, bool, str]) -> pa.Table:
        kinds = {"id": pa.string(), "ts": pa.int32(), "_hoodie_is_deleted": pa.bool_(), "name": pa.string()}
        return pa.table(
            {name: pa.array(column, kinds[name]) for name, column in zip(kinds, zip(*values, strict=True), strict=True)}
        )

    table.write(rows(*((key, ts, False, "base") for key, ts in zip("abcdefg", (1, 1, 1, -1, -1, 1, -3), strict=True))), "insert")
    table.write(
        rows(("a", 0, True, "x"), ("b", -1, True, "x"), ("c", 2, True, "x"), ("d", None, False, "null"), ("f", 0, False, "0"))
    )
    table.write(rows(("a", -5, False, "back"), ("c", 1, False, "late"), ("e", 0, True, "x"), ("g", -2, False, "newer")))
    table.write(rows(("e", -7, False, "back"), ("d", -1, False, "less than null"), ("c", 2, False, "tie")))
    table.expect()


@case("MERGE INTO that sets some columns in version 9: log blocks with partial rows", "mor", "event_time", "avro_log", "v9",
      "partial_update", "sql", release=NEWER)  # fmt: skip
def mor_v9_partial_blocks(table: Maker) -> None:
    table.configure(**{INLINE_COMPACTION: False, **SMALL_FILES})
    table.sql(
        "CREATE TABLE {table} (id STRING, ts BIGINT, rider STRING, fare DOUBLE, city STRING) USING hudi PARTITIONED BY (city) "
        "TBLPROPERTIES (type = 'mor', primaryKey = 'id', orderingFields = 'ts') LOCATION '{path}'"
    )
    table.hudi.view("rows_to_insert", trips(range(6), 1))
    table.sql("INSERT INTO {table} SELECT * FROM rows_to_insert")
    table.sql("DELETE FROM {table} WHERE id = 't002'")
    for ts, fare in ((5, 500.0), (7, 700.0), (6, 600.0)):
        table.hudi.view("news", trips((0, 1, 4), ts, fare=fare))
        table.sql("MERGE INTO {table} t USING news s ON t.id = s.id WHEN MATCHED THEN UPDATE SET t.fare = s.fare, t.ts = s.ts")
    table.sql("UPDATE {table} SET rider = 'new' WHERE id = 't000'")
    table.expect()
    table.expect_read_optimized()


# -- several ordering fields --------------------------------------------------------------------------------------------


def _versions(*values: tuple[str, int, int | None, str | None]) -> pa.Table:
    kinds = {"id": pa.string(), "ts": pa.int64(), "qty": pa.int32(), "name": pa.string()}
    columns = list(zip(*values, strict=True))
    return pa.table({name: pa.array(column, kind) for (name, kind), column in zip(kinds.items(), columns, strict=True)})


def _update_by_two_fields(table: Maker, nothing: int | None = None) -> None:
    """nothing: what a row has in place of its second value."""
    table.write(_marked(_versions(*((key, 5, 5, "base") for key in "abcdefgh"))), "insert")
    table.write(
        _marked(
            _versions(("a", 5, 6, "newer"), ("b", 5, 4, "older"), ("c", 6, 1, "newer"), ("d", 4, 9, "older"), ("e", 5, 5, "tie"),
                      ("f", 5, nothing, "null")),
        )
    )  # fmt: skip
    table.write(_marked(_versions(("a", 5, 6, None), ("c", 6, 0, None), ("g", 5, 4, None), ("h", 9, 9, None)), *[True] * 4))
    table.write(_marked(_versions(("h", 9, 8, "late"), ("g", 5, 5, "again"), ("i", 1, nothing, "new"))))
    table.write(_marked(_versions(("i", 1, -1, "before null"), ("b", 0, 0, ""))), "delete")
    table.write(_marked(_versions(("i", 1, -2, "back"))))


@case("two ordering fields: newer, older and equal tuples, deletes with tuples, a null in a place", "mor", "event_time",
      "avro_log", "v9", "deletes", "two_ordering_fields", "no_partitions", release=NEWER)  # fmt: skip
def mor_v9_two_fields(table: Maker) -> None:
    _merge_on_read(table, **{ORDERING: "ts,qty", PARTITION: None})
    _update_by_two_fields(table)
    table.expect()
    table.expect_as_of("as_of_second", table.timeline()[1].request_time)


@case(
    "two ordering fields, copy on write: the same writes, without the null that release 1.1.1 cannot merge there",
    "cow",
    "event_time",
    "v9",
    "deletes",
    "two_ordering_fields",
    "no_partitions",
    release=NEWER,
)
def cow_v9_two_fields(table: Maker) -> None:
    table.options = {KEY: "id", ORDERING: "ts,qty", **NO_SERVICES}
    _update_by_two_fields(table, nothing=0)
    table.expect()


@case("two ordering fields: compacted, and logs after it", "mor", "event_time", "avro_log", "v9", "deletes",
      "two_ordering_fields", "compaction", "no_partitions", release=NEWER)  # fmt: skip
def mor_v9_compacted(table: Maker) -> None:
    _merge_on_read(table, **{ORDERING: "ts,qty", PARTITION: None})
    _update_by_two_fields(table)
    table.write(_marked(_versions(("a", 7, 7, "seven"))), **{INLINE_COMPACTION: True, COMPACTION_AFTER: 1})
    table.write(
        _marked(_versions(("a", 7, 6, "late"), ("b", 1, 1, "back"), ("c", 6, 2, "newer"), ("d", 5, 6, None)), *[False] * 3, True)
    )
    table.expect()
    table.expect_read_optimized()


@case("base files in ORC, which release 1.1.1 reads: updates, late rows, deletes in logs", "mor", "event_time", "avro_log", "v9",
      "deletes", "orc", "no_partitions", release=NEWER)  # fmt: skip
def mor_v9_orc(table: Maker) -> None:
    in_orc = {"hoodie.table.base.file.format": "ORC", "hoodie.base.file.format": "ORC"}
    _merge_on_read(table, **{PARTITION: None, **in_orc})
    table.write(trips(range(9), 5), "insert")
    table.write(trips((0, 1), 6, fare=100.0))
    table.write(trips((2,), 6), "delete")
    table.write(trips((0, 3, 9), 7, fare=200.0))
    table.write(trips((1,), 1, fare=300.0))
    # Files without logs it reads only so.
    table.configure(**{"spark.sql.orc.enableVectorizedReader": False})
    table.expect()
    table.expect_read_optimized()


_TUPLE = pa.schema(
    [
        ("id", pa.string()),
        ("whole", pa.int64()),
        ("text", pa.string()),
        ("moment", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(10, 2)),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("tiny", pa.int8()),
    ]
)


@case("seven ordering fields of as many types, rows that differ in one each, deletes with their tuples", "mor", "event_time",
      "avro_log", "v9", "deletes", "two_ordering_fields", "no_partitions", release=NEWER)  # fmt: skip
def mor_v9_tuple_types(table: Maker) -> None:
    names = _TUPLE.names[1:]
    _merge_on_read(table, **{ORDERING: ",".join(names), PARTITION: None})

    def row(key: str, changed: str | None, step: int) -> dict[str, object]:
        def by(name: str) -> int:
            return step if name == changed else 0

        return {
            "id": key,
            "whole": 10**12 + by("whole"),
            "text": "mno"[1 + by("text")],
            "moment": datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=by("moment")),
            "price": Decimal("12.34") + Decimal(by("price")) / 100,
            "single": 1.5 + by("single"),
            "double": 2.5 + by("double"),
            "tiny": 3 + by("tiny"),
        }

    def rows(prefix: str, step: int, deleted: bool = False) -> pa.Table:
        made = pa.Table.from_pylist([row(f"{prefix}_{name}", name, step) for name in names], _TUPLE)
        return _marked(made, *[deleted] * len(names))

    base = [rows(prefix, 0) for prefix in ("newer", "older", "deleted", "kept")]
    table.write(pa.concat_tables(base), "insert")
    table.write(pa.concat_tables([rows("newer", 1), rows("older", -1), rows("deleted", 1, True), rows("kept", -1, True)]))
    # No dates among them: release 1.1.1 cannot compare the date of a tuple in a delete with that of a row.
    table.write(rows("deleted", 0))
    table.expect()


# -- payload classes that became merge modes ----------------------------------------------------------------------------

_COLUMNS = pa.schema(
    [("id", pa.string()), ("ts", pa.int64()), ("name", pa.string()), ("amount", pa.float64()), ("qty", pa.int32())]
)
_Row = tuple[str, int, str | None, float | None, int | None]


def _rows(*values: _Row) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(_COLUMNS.names, value, strict=True)) for value in values], _COLUMNS)


def _with(rows: pa.Table, **columns: Sequence[object]) -> pa.Table:
    for name, values in columns.items():
        rows = rows.append_column(name, pa.array(values))
    return rows


_BASE = _rows(("a", 1, "x", 1.5, 1), ("b", 1, "y", None, 2), ("c", 1, None, 3.0, None), ("e", 1, "z", 2.5, 5))
_SECOND = _rows(("a", 2, None, 7.5, None), ("b", 0, "old", 9.0, 9), ("e", 3, None, None, None))
_THIRD = _rows(("a", 3, "n3", None, None), ("e", 2, "late", None, 6), ("b", 0, None, 8.0, None), ("f", 1, "new", None, 4))


def _payload(
    table: Maker, payload: str, table_type: str = MOR, extra: dict[str, list[list[object]]] | None = None, **more: object
) -> None:
    """A base file and two logs; extra: more columns, the values of each for each write."""
    _merge_on_read(table, **{PAYLOAD: MODEL + payload, PARTITION: None, TYPE: table_type, **more})
    columns = extra or {}
    for number, (rows, operation) in enumerate(((_BASE, "insert"), (_SECOND, "upsert"), (_THIRD, "upsert"))):
        table.write(_with(rows, **{name: values[number] for name, values in columns.items()}), operation)
    table.expect()


_OPERATIONS: list[list[object]] = [["c"] * 4, ["u", "d", "u"], ["u", "d", "c", "c"]]
_PLAIN = ("OverwriteWithLatestAvroPayload", "DefaultHoodieRecordPayload", "EventTimeAvroPayload",
          "OverwriteNonDefaultsWithLatestAvroPayload", "PartialUpdateAvroPayload")  # fmt: skip
_BY_COMMIT = ("OverwriteWithLatestAvroPayload", "OverwriteNonDefaultsWithLatestAvroPayload", "AWSDmsAvroPayload")
_FILLING = ("OverwriteNonDefaultsWithLatestAvroPayload", "PartialUpdateAvroPayload", "PostgresDebeziumAvroPayload")
_UNAVAILABLE = "__debezium_unavailable_value"


def _postgres(table: Maker, table_type: str = MOR) -> None:
    _payload(
        table,
        "debezium.PostgresDebeziumAvroPayload",
        table_type,
        {
            "_event_lsn": [[1] * 4, [2, 0, 3], [3, 2, 4, 1]],
            "_change_operation_type": _OPERATIONS,
            "note": [["n"] * 4, [_UNAVAILABLE, "m", _UNAVAILABLE], ["k", "l", "m", _UNAVAILABLE]],
        },
        **{ORDERING: "_event_lsn"},
    )


def _mysql(table: Maker) -> None:
    files = [["bin.01"] * 4, ["bin.02", "bin.00", "bin.01"], ["bin.02", "bin.02", "bin.00", "bin.01"]]
    positions = [[10] * 4, [1, 99, 11], [2, 1, 99, 1]]
    _payload(
        table,
        "debezium.MySqlDebeziumAvroPayload",
        MOR,
        {
            "_event_bin_file": [[*some] for some in files],
            "_event_pos": [[*some] for some in positions],
            "_event_seq": [[f"{f[4:]}.{p}" for f, p in zip(*both, strict=True)] for both in zip(files, positions, strict=True)],
            "_change_operation_type": _OPERATIONS,
        },
        **{ORDERING: "_event_bin_file,_event_pos"},
    )


def _add(name: str, payload: str, make: partial[None], *traits: str) -> None:
    kind = "mor" if name.startswith("mor") else "cow"
    mode = "commit_time" if payload in _BY_COMMIT else "event_time"
    fills = ("fills",) if payload in _FILLING else ()
    place = "logs" if kind == "mor" else "base files"
    shown = f"payload class {payload} as a merge mode: nulls, late rows and ties in {place}"
    CASES.append(Case(name, shown, (kind, mode, "v9", "no_partitions", *fills, *traits), make, NEWER))


for _name in _PLAIN:
    _short = _name.removesuffix("AvroPayload").removesuffix("Payload")
    _add(f"mor_v9_{_short}", _name, partial(_payload, payload=_name), "avro_log")
_add(
    "cow_v9_PartialUpdate",
    "PartialUpdateAvroPayload",
    partial(_payload, payload="PartialUpdateAvroPayload", table_type="COPY_ON_WRITE"),
)
_dms: dict[str, list[list[object]]] = {"Op": [["I"] * 4, ["U", "D", "U"], ["U", "D", "I", "I"]]}
_add(
    "mor_v9_AWSDms", "AWSDmsAvroPayload", partial(_payload, payload="AWSDmsAvroPayload", extra=_dms), "avro_log", "delete_marker"
)
_add("mor_v9_PostgresDebezium", "PostgresDebeziumAvroPayload", partial(_postgres), "avro_log", "delete_marker")
_add("mor_v9_MySqlDebezium", "MySqlDebeziumAvroPayload", partial(_mysql), "avro_log", "delete_marker", "two_ordering_fields")


@case(
    "a delete marker of the table's own: newer and older marked rows",
    "mor",
    "event_time",
    "avro_log",
    "v9",
    "delete_marker",
    "no_partitions",
    release=NEWER,
)
def mor_v9_delete_marker(table: Maker) -> None:
    marks: dict[str, list[list[object]]] = {"state": [["on"] * 4, ["DEL", "DEL", "on"], ["on", "DEL", "DEL", "DEL"]]}
    marker = {"hoodie.payload.delete.field": "state", "hoodie.payload.delete.marker": "DEL"}
    _payload(table, "DefaultHoodieRecordPayload", extra=marks, **marker)


# -- change data --------------------------------------------------------------------------------------------------------


@case("change log of version 9: insert, update, delete", "cow", "event_time", "cdc", "deletes", "v9", release=NEWER)
def cow_v9_cdc(table: Maker) -> None:
    table.options = {KEY: "id", ORDERING: "ts", PARTITION: "city", "hoodie.table.cdc.enabled": True, **NO_SERVICES}
    _change(table)


@case("change log of version 9 with logs and a compaction, which writes changes too", "mor", "event_time", "avro_log", "cdc",
      "deletes", "compaction", "v9", release=NEWER)  # fmt: skip
def mor_v9_cdc(table: Maker) -> None:
    _merge_on_read(table, **{"hoodie.table.cdc.enabled": True})
    _change(table)
    table.write(trips((3, 61), 4, fare=300.0), **{INLINE_COMPACTION: True, COMPACTION_AFTER: 1})
    table.write(trips((4,), 5, fare=400.0))
    table.expect()
    table.expect_changes("changes_all", "000")


def _change(table: Maker) -> None:
    table.write(trips(range(6), 1), "insert")
    table.write(trips((0, 1, 60), 2, fare=100.0))
    table.write(trips((2, 60), 3), "delete")
    instants = table.timeline()
    table.expect()
    table.expect_changes("changes_all", "000")
    table.expect_changes("changes_second", instants[0].completion_time or "", instants[1].completion_time)


# -- indexes ------------------------------------------------------------------------------------------------------------

_METADATA_TABLE = {"hoodie.metadata.enable": True, "hoodie.metadata.index.column.stats.file.group.count": 1}
_ALL_INDEXES = {
    **_METADATA_TABLE,
    "hoodie.metadata.record.index.enable": True,
    "hoodie.metadata.record.index.min.filegroup.count": 2,
    "hoodie.metadata.record.index.max.filegroup.count": 2,
    "hoodie.metadata.index.bloom.filter.enable": True,
    **LOCKED,
}


def _index(table: Maker, *statements: str) -> None:
    table.register()
    table.configure(**{**SMALL_FILES, **_ALL_INDEXES})
    for statement in statements:
        table.sql(statement)


@case("statistics of columns of every type in their second form: base files", "cow", "event_time", "v9", "mdt", "types",
      "deletes", release=NEWER)  # fmt: skip
def cow_v9_types(table: Maker) -> None:
    table.options = {KEY: "id", ORDERING: "version", **_METADATA_TABLE, **NO_SERVICES}
    table.write(rows_of_every_type(range(8), 1), "insert")
    table.write(rows_of_every_type((1,), 2))
    table.write(rows_of_every_type((3,), 3), "delete")
    table.expect()


@case("every type in logs, and the statistics of logs; a log of deletes alone", "mor", "event_time", "avro_log", "v9", "mdt",
      "types", "deletes", release=NEWER)  # fmt: skip
def mor_v9_types(table: Maker) -> None:
    _merge_on_read(table, **{ORDERING: "version", PARTITION: None, **_METADATA_TABLE})
    table.write(rows_of_every_type(range(8), 1), "insert")
    table.write(rows_of_every_type((0, 1, 2, 5), 2))
    table.write(rows_of_every_type((3,), 3), "delete")
    table.expect()


@case("record, secondary and expression indexes in their second form, Bloom filters; rows move between values", "mor",
      "event_time", "avro_log", "v9", "mdt", "record_index", "indexes", "deletes", release=NEWER)  # fmt: skip
def mor_v9_indexes(table: Maker) -> None:
    _merge_on_read(table, **_ALL_INDEXES)
    rows = trips(range(9), 1)
    strange = ["x$y", "back\\slash", "nul\0c", "", None, "ümlaut", "plain", "plain", None]
    table.write(rows.set_column(2, "rider", pa.array(strange)), "insert")
    _index(
        table,
        "CREATE INDEX by_rider ON {table} (rider)",
        "CREATE INDEX by_day ON {table} USING column_stats(ts) OPTIONS(expr='from_unixtime', format='yyyy-MM-dd')",
    )
    table.write(trips((0, 1, 70), 100_000, fare=100.0).set_column(2, "rider", pa.array(["moved", None, "plain"])))
    table.write(trips((2, 6), 3), "delete")
    table.expect()


@case("a secondary index over dates, and a second one that release 1.1.1 does not keep up with logs", "mor", "event_time",
      "avro_log", "v9", "mdt", "record_index", "indexes", "no_partitions", release=NEWER)  # fmt: skip
def mor_v9_two_secondary(table: Maker) -> None:
    _merge_on_read(table, **{**_ALL_INDEXES, "hoodie.metadata.index.bloom.filter.enable": False, PARTITION: None})

    def rows(*values: tuple[str, int, int | None, datetime.date | None]) -> pa.Table:
        kinds = {"id": pa.string(), "ts": pa.int64(), "qty": pa.int32(), "day": pa.date32()}
        columns = list(zip(*values, strict=True))
        return pa.table({name: pa.array(column, kind) for (name, kind), column in zip(kinds.items(), columns, strict=True)})

    day = datetime.date(2026, 11, 21)
    table.write(rows(("a", 1, 1, day), ("b", 1, 2, None), ("c", 1, None, datetime.date(1969, 12, 31))), "insert")
    _index(table, "CREATE INDEX by_day ON {table} (day)", "CREATE INDEX by_qty ON {table} (qty)")
    table.write(rows(("a", 2, 7, datetime.date(2026, 12, 24)), ("d", 2, 2, day)))
    table.expect()


@case("a record index for each partition; one partition comes later", "mor", "event_time", "avro_log", "v9", "mdt",
      "partitioned_record_index", "deletes", release=NEWER)  # fmt: skip
def mor_v9_partitioned_index(table: Maker) -> None:
    _partitioned_index(table)


def _partitioned_index(table: Maker) -> None:
    _merge_on_read(
        table,
        **{
            **_METADATA_TABLE,
            "hoodie.metadata.record.level.index.enable": True,
            "hoodie.index.type": "RECORD_LEVEL_INDEX",
        },
    )

    def placed(rows: pa.Table, *cities: str) -> pa.Table:
        return rows.set_column(4, "city", pa.array(cities))

    table.write(placed(trips(range(6), 1), *["north_east", "a-b"] * 3), "insert")
    table.write(placed(trips((0, 1, 70), 2, fare=100.0), "north_east", "a-b", "later"))
    # The key t000 is there twice, once in each partition.
    table.write(placed(trips((0,), 3, fare=200.0), "a-b"))
    table.write(placed(trips((2,), 3), "north_east"), "delete")
    table.expect()


# -- older versions, as release 1.1.1 writes them -----------------------------------------------------------------------


AVRO_TYPES: Mapping[str, Any] = {
    "type": "record",
    "name": "reading",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "ts", "type": "long"},
        {"name": "colour", "type": {"type": "enum", "name": "colour", "symbols": ["RED", "GREEN", "BLUE"]}},
        {"name": "sure", "type": ["null", {"type": "enum", "name": "sure", "symbols": ["YES", "NO"]}], "default": None},
        {"name": "seen", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
        {"name": "clock", "type": ["null", {"type": "long", "logicalType": "local-timestamp-millis"}], "default": None},
    ],
}
"""Types that Avro has and rows of Spark have not."""


def avro_rows(*values: tuple[str, int, str, str | None, int | None]) -> list[dict[str, Any]]:
    """Rows of `AVRO_TYPES`, in the JSON of Avro; the two times are equal, in milliseconds."""
    return [
        {
            "id": key,
            "ts": (1 << 40) + ts,
            "colour": colour,
            "sure": None if sure is None else {"sure": sure},
            "seen": None if seen is None else {"long": seen},
            "clock": None if seen is None else {"long": seen},
        }
        for key, ts, colour, sure, seen in values
    ]


@case("columns of Avro enums and of milliseconds, which the streamer and Flink write: base files and Parquet logs", "mor",
      "event_time", "parquet_log", "v9", "mdt", "avro_types", "no_partitions", release=NEWER)  # fmt: skip
def mor_v9_avro_types(table: Maker) -> None:
    _merge_on_read(table, **{PARTITION: None, "hoodie.metadata.enable": True, **PARQUET_LOGS})
    table.write_avro(
        AVRO_TYPES, avro_rows(("a", 1, "RED", "YES", 1_767_323_045_678), ("b", 1, "GREEN", None, -1), ("c", 1, "RED", "NO", None))
    )
    table.write_avro(
        AVRO_TYPES, avro_rows(("a", 2, "BLUE", None, 1_767_323_045_679), ("c", 0, "BLUE", "YES", 7), ("d", 1, "RED", "YES", 0))
    )
    table.expect()
    table.expect_read_optimized()


def _of_version(table: Maker, version: int, **more: object) -> None:
    _merge_on_read(table, **{"hoodie.write.table.version": version, **more})
    table.write(trips(range(9), 5), "insert")
    table.write(trips((0, 1), 6, fare=100.0))
    table.write(trips((0, 2), 1, fare=200.0))
    table.write(trips((3,), 7), "delete")
    table.expect()
    table.expect_read_optimized()


@case("table version 8 by release 1.1.1: the ordering field stands under its newer name; all indexes in their first form", "mor",
      "event_time", "avro_log", "mdt", "record_index", "deletes", "by_1_1", release=NEWER)  # fmt: skip
def mor_v8_by_1_1(table: Maker) -> None:
    _of_version(table, 8, **{**_ALL_INDEXES, "hoodie.metadata.index.bloom.filter.enable": False})


@case("table version 8 by release 1.1.1, copy on write", "cow", "event_time", "deletes", "by_1_1", release=NEWER)
def cow_v8_by_1_1(table: Maker) -> None:
    table.options = {KEY: "id", ORDERING: "ts", PARTITION: "city", "hoodie.write.table.version": 8, **NO_SERVICES}
    table.write(trips(range(9), 5), "insert")
    table.write(trips((0, 1), 6, fare=100.0))
    table.write(trips((0, 2), 1, fare=200.0))
    table.expect()


@case("table version 6 by release 1.1.1", "mor", "event_time", "avro_log", "v6", "deletes", "by_1_1", release=NEWER)
def mor_v6_by_1_1(table: Maker) -> None:
    _of_version(table, 6)


@case("version 8 with a payload class and indexes in their first form, upgraded to 9", "mor", "event_time", "avro_log", "v9",
      "mdt", "record_index", "indexes", "fills", "compaction", "no_partitions", release=NEWER)  # fmt: skip
def mor_v9_upgraded(table: Maker) -> None:
    options = {**_ALL_INDEXES, "hoodie.metadata.index.bloom.filter.enable": False, PARTITION: None}
    _merge_on_read(table, **{**options, PAYLOAD: MODEL + "PartialUpdateAvroPayload"})
    table.write(_BASE, "insert", **{"hoodie.write.table.version": 8})
    table.write(_SECOND, **{"hoodie.write.table.version": 8})
    table.write(_THIRD)
    table.write(_rows(("c", 2, "filled", None, 8)))
    table.expect()


@case("a record index for each partition, left in a table of version 8 by a downgrade", "mor", "event_time", "mdt",
      "partitioned_record_index", "deletes", "by_1_1", "compaction", release=NEWER)  # fmt: skip
def mor_v8_downgraded(table: Maker) -> None:
    _partitioned_index(table)
    table.register()
    table.configure(**SMALL_FILES)
    table.sql("CALL downgrade_table(table => '{table}', to_version => 'EIGHT')")
    table.expect()

"""Secondary and expression indexes that PyHudi and Apache Hudi create, write and read by, in tables of versions 8 and 9."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyhudi import Table
from tests.interop.oracle import ApacheHudi
from tests.interop.pair import Pair, Row

Queries = tuple[tuple[str, Callable[[Row], bool]], ...]


@dataclass(frozen=True)
class Indexes:
    """The indexes of one table version, and how either side creates them.

    Attributes:
        version: Of the table.
        fixture: The fixture of the Hudi release whose own version it is.
        options: Of the table, for both writers.
        writes: More options of the writes of Hudi.
        session: Settings without which Hudi creates no index.
        statements: What follows CREATE INDEX; `{t}` is the table.
        arguments: Of `Table.index.create`.
        queries: What Hudi reads by one index each, and which rows it must find.
        lookups: Column, value and index of the lookups in secondary indexes.
        note: The text that the scenario gives to rows.
    """

    version: int
    fixture: str
    options: Mapping[str, Any]
    writes: Mapping[str, Any]
    session: Mapping[str, str]
    statements: tuple[str, ...]
    arguments: tuple[tuple[tuple[str, ...], dict[str, Any]], ...]
    queries: Queries
    lookups: tuple[tuple[str, Any, str], ...]
    note: str

    @contextmanager
    def session_of(self, hudi: ApacheHudi) -> Iterator[None]:
        for key, value in self.session.items():
            hudi.sql(f"SET {key}={value}")
        try:
            yield
        finally:
            for key in self.session:
                hudi.sql(f"RESET {key}")

    def create_by_hudi(self, hudi: ApacheHudi, path: Path, name: str) -> None:
        hudi.register(path, name)
        for statement in self.statements:
            hudi.sql(f"CREATE INDEX {statement.format(t=name)}")

    def create_by_pyhudi(self, table: Table, *, bloom_filters: bool = True) -> None:
        for arguments, named in self.arguments:
            if bloom_filters or arguments[0] != "bloom_filters":
                table.index.create(*arguments, **named)

    def check(self, pair: Pair, count: int) -> None:
        """The metadata table covers the files, Hudi reads the right rows by the first `count` queries, and PyHudi looks keys up.

        Not more than covers: Hudi counts the rows of older files into the statistics of partitions.
        """
        report = pair.table.validate()
        assert report.ok, str(report)
        pair.check_filters(self.queries[:count])
        for column, value, index in self.lookups:
            scan = pair.table.scan(filter=[(column, "=", value)])
            assert scan.count() == sum(row[column] == value for row in pair.rows.values())
            assert f"secondary index {index}" in str(scan.explain())


VERSION_8 = Indexes(
    version=8,
    fixture="hudi",
    options={
        "hoodie.metadata.record.index.enable": True,
        "hoodie.metadata.record.index.min.filegroup.count": 2,
        "hoodie.metadata.compact.max.delta.commits": 4,
    },
    writes={"hoodie.index.type": "RECORD_INDEX"},
    session={"hoodie.metadata.record.index.enable": "true"},
    statements=(
        "note ON {t} (note)",
        "seats ON {t} (seats)",
        "of_moment ON {t} USING column_stats(moment) OPTIONS(expr='to_date')",
        "of_ts ON {t} USING column_stats(ts) OPTIONS(expr='from_unixtime', format='yyyy-MM-dd')",
        "of_id ON {t} USING column_stats(id) OPTIONS(expr='length')",
        "of_city ON {t} USING bloom_filters(city) OPTIONS(expr='upper')",
    ),
    arguments=(
        (("secondary_index", "note"), {}),
        (("secondary_index", "seats"), {}),
        (("column_stats", "moment"), {"function": "to_date", "name": "of_moment"}),
        (
            ("column_stats", "ts"),
            {"function": "from_unixtime", "function_options": {"format": "yyyy-MM-dd"}, "name": "of_ts"},
        ),
        (("column_stats", "id"), {"function": "length", "name": "of_id"}),
        (("bloom_filters", "city"), {"function": "upper", "name": "of_city"}),
    ),
    queries=(
        ("note = 'xx'", lambda row: row["note"] == "xx"),
        ("seats = 3", lambda row: row["seats"] == 3),
        ("to_date(moment) = DATE'2026-01-21'", lambda row: row["moment"].date() == datetime.date(2026, 1, 21)),
        ("from_unixtime(ts, 'yyyy-MM-dd') = '1970-01-01'", lambda row: True),
        ("length(id) = 5", lambda row: len(row["id"]) == 5),
        ("upper(city) = 'OSLO'", lambda row: row["city"] == "oslo"),
    ),
    lookups=(("note", "xx", "secondary_index_note"), ("seats", 3, "secondary_index_seats")),
    note="xx",
)
VERSION_9 = Indexes(
    version=9,
    fixture="newer_hudi",
    options={**VERSION_8.options, "hoodie.write.table.version": 9},
    writes={"hoodie.index.type": "RECORD_INDEX", "hoodie.embed.timeline.server": False},
    # Release 1.1 creates no index in a session that names no lock.
    session={
        "hoodie.metadata.record.index.enable": "true",
        "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
        "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
        "hoodie.clean.failed.writes.policy": "LAZY",
    },
    statements=(
        "by_note ON {t} (note)",
        "by_day ON {t} (day)",
        "of_moment ON {t} USING column_stats(moment) OPTIONS(expr='to_date')",
        "of_id ON {t} USING column_stats(id) OPTIONS(expr='length')",
    ),
    arguments=(
        (("secondary_index", "note"), {"name": "by_note"}),
        (("secondary_index", "day"), {"name": "by_day"}),
        (("column_stats", "moment"), {"function": "to_date", "name": "of_moment"}),
        (("column_stats", "id"), {"function": "length", "name": "of_id"}),
    ),
    queries=(
        ("note = 'x$\\\\x'", lambda row: row["note"] == "x$\\x"),
        ("day = DATE'2026-01-24'", lambda row: row["day"] == datetime.date(2026, 1, 24)),
        ("to_date(moment) = DATE'2026-01-21'", lambda row: row["moment"].date() == datetime.date(2026, 1, 21)),
        ("length(id) = 5", lambda row: len(row["id"]) == 5),
        ("price >= 25.00", lambda row: row["price"] is not None and row["price"] >= 25),
    ),
    lookups=(
        ("note", "x$\\x", "secondary_index_by_note"),
        ("day", datetime.date(2026, 1, 24), "secondary_index_by_day"),
    ),
    note="x$\\x",
)


def index_definitions(path: Path) -> dict[str, dict[str, Any]]:
    """The definitions of a table's indexes, as `.hoodie/.index_defs/index.json` stores them."""
    document = json.loads((path / ".hoodie/.index_defs/index.json").read_text())
    definitions: dict[str, dict[str, Any]] = document["indexDefinitions"]
    return definitions

"""What a case of the golden tables may do, and how its result is stored.

A case writes one table with Apache Hudi and names the queries whose answers are worth keeping.  Stored per case:

    case.json      what the case shows, its traits, the queries (name, options of the read, row count)
    table.zip      the table's folder, empty folders included, without Hadoop's .crc files unless the case is about them
    expected.zip   one Parquet file per query, with the rows that Apache Hudi gave, meta columns included

The members of the archives have a fixed time, so that the same bytes give the same archive.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.interop.oracle import RELEASE, ApacheHudi, HudiFailure, TimelineEntry

# The default Bloom filter is 431 KB of text in every base file; one case keeps it.
SMALL_FILES = {
    "hoodie.index.bloom.num_entries": 50,
    "hoodie.index.bloom.fpp": 0.01,
    "hoodie.metadata.enable": False,
    "hoodie.embed.timeline.server": False,
    "hoodie.parquet.compression.codec": "snappy",
}

_EPOCH = (2026, 1, 1, 0, 0, 0)


@dataclass(slots=True)
class Query:
    """A read with its options, and the rows that it gave."""

    name: str
    options: dict[str, str]
    rows: pa.Table


@dataclass(slots=True)
class Maker:
    """One table under construction.  options: what every write of the case passes, over `SMALL_FILES`."""

    hudi: ApacheHudi
    path: Path
    options: dict[str, object] = field(default_factory=dict)
    keep_sidecars: bool = False
    queries: list[Query] = field(default_factory=list)
    configured: list[str] = field(default_factory=list)

    def write(self, rows: pa.Table, operation: str = "upsert", /, **options: object) -> None:
        """One write; the options of the call beat those of the case, and None takes an option away."""
        merged: dict[str, Any] = {
            "hoodie.table.name": self.path.name,
            **SMALL_FILES,
            **self.options,
            "hoodie.datasource.write.operation": operation,
            **options,
        }
        kept = {key: value for key, value in merged.items() if value is not None}
        self.hudi.write(rows, self.path, partitions=1, **kept)

    def write_avro(self, schema: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], **options: object) -> None:
        """One upsert of records of an Avro schema, see `ApacheHudi.write_avro`."""
        self.hudi.write_avro(self.path, schema, rows, **{**SMALL_FILES, **self.options, **options})

    def fail(self, rows: pa.Table, operation: str = "upsert", /, **options: object) -> None:
        """One write that reaches the storage and then fails a validator: its files, markers and instant stay behind."""
        try:
            self.write(
                rows,
                operation,
                **{
                    "hoodie.precommit.validators": "org.apache.hudi.client.validator.SqlQuerySingleResultPreCommitValidator",
                    "hoodie.precommit.validators.single.value.sql.queries": "SELECT count(*) FROM <TABLE_NAME>#-1",
                    **options,
                },
            )
        except HudiFailure as failure:
            # A write that made only logs leaves the validator without a file to read, which fails the write at the same place.
            if not failure.mentions("HoodieValidationException") and not failure.mentions("UNABLE_TO_INFER_SCHEMA"):
                raise
            return
        raise AssertionError("the write was meant to fail")

    def sql(self, text: str) -> pa.Table:
        """A statement about the table, which it names {table}."""
        return self.hudi.sql(text.format(table=self.path.name, path=self.path))

    def configure(self, **options: object) -> None:
        """Options for the statements of the case, which have none of their own; `forget_configuration` takes them back."""
        for key, value in options.items():
            self.hudi.sql(f"SET {key}={str(value).lower() if isinstance(value, bool) else value}")
            self.configured.append(key)

    def forget_configuration(self) -> None:
        """Leaves the session as the case found it."""
        for key in self.configured:
            self.hudi.sql(f"RESET {key}")

    def register(self) -> None:
        """Makes the table known to SQL under the name of the case."""
        self.hudi.register(self.path, self.path.name)

    def timeline(self) -> tuple[TimelineEntry, ...]:
        """The active timeline, oldest first."""
        return self.hudi.timeline(self.path)

    def last(self, action: str | None = None) -> TimelineEntry:
        """The newest completed instant, of `action` where one is given."""
        return [one for one in self.timeline() if one.state == "COMPLETED" and action in (None, one.action)][-1]

    def expect(self, name: str = "snapshot", /, **options: Any) -> None:
        """Keeps what Apache Hudi reads now, or with these options; a query of that name is replaced."""
        rows = self.hudi.read(self.path, **options)
        self.queries = [query for query in self.queries if query.name != name]
        self.queries.append(Query(name, {key: str(value) for key, value in options.items()}, rows))

    def expect_read_optimized(self) -> None:
        """Keeps the rows of the base files alone."""
        self.expect("read_optimized", **{"hoodie.datasource.query.type": "read_optimized"})

    def expect_as_of(self, name: str, request_time: str) -> None:
        """Keeps the rows as of an instant."""
        self.expect(name, **{"as.of.instant": request_time})

    def expect_incremental(self, name: str, begin: str, end: str | None = None, /, **options: object) -> None:
        """Keeps the latest state of what changed from completion time `begin` to `end`, both included."""
        bounds = {"hoodie.datasource.read.begin.instanttime": begin, "hoodie.datasource.read.end.instanttime": end}
        chosen = {key: value for key, value in bounds.items() if value is not None}
        self.expect(name, **{"hoodie.datasource.query.type": "incremental", **chosen, **options})

    def expect_changes(self, name: str, begin: str, end: str | None = None) -> None:
        """Keeps the change log (CDC) of the commits requested after `begin` up to `end`."""
        self.expect_incremental(name, begin, end, **{"hoodie.datasource.query.incremental.format": "cdc"})


@dataclass(frozen=True, slots=True)
class Case:
    """A golden table: what it shows in a sentence, the traits by which a test chooses it, what makes it, with which release."""

    name: str
    shows: str
    traits: tuple[str, ...]
    make: Callable[[Maker], None]
    release: str = RELEASE


def store(case: Case, maker: Maker, folder: Path) -> int:
    """Writes the case below `folder`; the bytes it takes there."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table.zip").write_bytes(_zip_folder(maker.path, maker.keep_sidecars))
    (folder / "expected.zip").write_bytes(_zip([(f"{query.name}.parquet", _parquet(query.rows)) for query in maker.queries]))
    described: dict[str, Any] = {
        "shows": case.shows,
        "traits": sorted(case.traits),
        "queries": [{"name": query.name, "options": query.options, "row_count": query.rows.num_rows} for query in maker.queries],
    }
    (folder / "case.json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
    return sum(path.stat().st_size for path in folder.iterdir())


def _parquet(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    # Plain and uncompressed: the archive compresses.
    pq.write_table(rows, sink, compression="none", use_dictionary=False, write_statistics=False)
    return sink.getvalue()


def _zip_folder(root: Path, keep_sidecars: bool) -> bytes:
    members: list[tuple[str, bytes]] = []
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_dir():
            if not any(path.iterdir()):
                members.append((name + "/", b""))
        elif keep_sidecars or not (path.name.startswith(".") and path.name.endswith(".crc")):
            members.append((name, path.read_bytes()))
    return _zip(members)


def _zip(members: Sequence[tuple[str, bytes]]) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED, compresslevel=9)
    return sink.getvalue()

"""Run the demo: `python -m scripts.demo [--engine embedded|spark|both] [--keep FOLDER | --uri URI [--storage KEY=VALUE ...]]`.

For each engine: create a table partitioned by origin, bulk insert January, upsert the other months with late corrections of
earlier flights, delete the cancelled flights, read back, and compare the totals with the source.

At a URI of an object store or of HDFS the tables stay; what reaches it is said by `--storage`, or by the environment, as
docs/object-stores.md lists it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import pyhudi as hp
from scripts.demo.flights import KEY, load_flights, months

Write = Callable[[str, pa.Table], hp.WriteResult]


def main() -> None:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--engine", choices=("embedded", "spark", "both"), default="both")
    parser.add_argument("--keep", type=Path, help="keep the tables in this folder")
    parser.add_argument("--uri", help="put the tables below this URI, and keep them: s3://bucket/demo, hdfs://namenode/demo, ...")
    parser.add_argument("--storage", action="append", default=[], metavar="KEY=VALUE", help="a storage option of that URI")
    arguments = parser.parse_args()
    if arguments.keep is not None and arguments.uri is not None:
        parser.error("--keep names a folder and --uri a store: give one of them")
    wrong = next((each for each in arguments.storage if "=" not in each), None)
    if wrong is not None:
        parser.error(f"--storage {wrong}: write KEY=VALUE")
    storage = dict(each.split("=", 1) for each in arguments.storage)
    scratch = Path(tempfile.mkdtemp(prefix="pyhudi-demo-")) if arguments.keep is None and arguments.uri is None else None
    # A name of its own for each run: what an earlier one left in a store is not gone over.
    run_name = time.strftime("flights_%Y%m%d_%H%M%S")
    place = f"{arguments.uri.rstrip('/')}/{run_name}" if arguments.uri else str(scratch or arguments.keep)
    try:
        flights = load_flights()
        print(f"{flights.num_rows:,} flights from New York in 2013, as twelve monthly batches")
        if arguments.engine in ("embedded", "both"):
            embedded = Place(f"{place}/flights_embedded", storage)
            run("embedded", embedded, flights, lambda table: lambda method, rows: getattr(table, method)(rows))
        if arguments.engine in ("spark", "both"):
            if shutil.which("java") is None:
                print("\nSpark needs Java 17 or newer: install openjdk-17-jre-headless, then run the demo again")
            else:
                run_on_spark(Place(f"{place}/flights_spark", storage), flights)
        if arguments.uri:
            print(f"\nthe tables stay in {place}")
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


@dataclass(frozen=True)
class Place:
    """Where a table lies, and the storage options that reach it."""

    uri: str
    storage: dict[str, str]


def run(engine: str, place: Place, flights: pa.Table, writer: Callable[[hp.Table], Write]) -> None:
    """The main job on one engine, with each step timed, and the check at its end."""
    print(f"\n{engine}")
    begun = time.perf_counter()
    table = hp.Table.create(
        place.uri, name="flights", record_key=KEY, partition_by="origin", ordering="updated_at", storage_options=place.storage
    )
    write = writer(table)
    expected = _Expected(flights)
    cancelled: list[pa.Table] = []
    with progress(12) as advance:
        for month in months(flights):
            if month.number == 1:
                step("bulk_insert January", advance, lambda: write("bulk_insert", month.flights))  # noqa: B023 - called at once
            else:
                batch = pa.concat_tables([month.flights, month.corrections])
                label = f"upsert month {month.number:2d} ({month.corrections.num_rows:,} corrections)"
                step(label, advance, lambda: write("upsert", batch))  # noqa: B023 - called at once
            expected.correct(month.corrections)
            cancelled.append(month.cancelled.select(KEY))
    gone = pa.concat_tables(cancelled)
    step(f"delete {gone.num_rows:,} cancelled flights", None, lambda: write("delete", gone))
    since = time.perf_counter()
    found = table.scan().to_arrow()
    print(f"  {'read back':<42}{time.perf_counter() - since:6.2f} s   {found.num_rows:,} rows")
    expected.delete(gone)
    expected.check(found)
    print(f"  the totals agree with the source: {found.num_rows:,} flights, {time.perf_counter() - begun:.1f} s in all")


def run_on_spark(place: Place, flights: pa.Table) -> None:
    """The same job with DataFrames on local Spark."""
    from pyspark.sql import SparkSession

    from pyhudi import spark as hs

    # Workers run in the interpreter that has PyHudi, not in whichever python3 comes first on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("pyhudi demo")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:

        def writer(table: hp.Table) -> Write:
            def write(method: str, rows: pa.Table) -> hp.WriteResult:
                frame = spark.createDataFrame(rows)
                operation = {"hoodie.datasource.write.operation": method}
                return hs.write(frame, table.uri, options=operation, storage_options=place.storage)

            return write

        run("Spark", place, flights, writer)
        # The data source reads by PyHudi's own client, so that the session needs no file system for the store.
        hs.enable(spark)
        reader = spark.read.format("pyhudi").options(**{f"pyhudi.storage.{key}": value for key, value in place.storage.items()})
        count = reader.load(place.uri).where("origin = 'JFK'").count()
        print(f"  Spark counts {count:,} flights from JFK")
    finally:
        spark.stop()


def step(label: str, advance: Callable[[], None] | None, action: Callable[[], hp.WriteResult]) -> None:
    """Run one write and print what it changed."""
    since = time.perf_counter()
    result = action()
    seconds = time.perf_counter() - since
    changed = f"{result.rows_inserted:,} inserted, {result.rows_updated:,} updated, {result.rows_deleted:,} deleted"
    line = f"  {label:<42}{seconds:6.2f} s   {changed}; {result.bytes_written / 1e6:.1f} MB written"
    if advance is None:
        print(line)
    else:
        advance_line(line, advance)


def advance_line(line: str, advance: Callable[[], None]) -> None:
    """Print a line above the progress bar."""
    if sys.stdout.isatty():
        sys.stdout.write("\r\x1b[2K")
    print(line)
    advance()


@contextmanager
def progress(total: int) -> Iterator[Callable[[], None]]:
    """A bar on a terminal; nothing elsewhere."""
    done = 0
    width = 40

    def advance() -> None:
        nonlocal done
        done += 1
        if sys.stdout.isatty():
            filled = width * done // total
            sys.stdout.write(f"\r  [{'#' * filled}{'.' * (width - filled)}] {done}/{total}")
            sys.stdout.flush()

    yield advance
    if sys.stdout.isatty():
        sys.stdout.write("\r\x1b[2K")


class _Expected:
    """What the table must hold, worked out from the source alone."""

    def __init__(self, flights: pa.Table) -> None:
        self._rows: dict[Any, Any] = dict(zip(_keys(flights), flights["arr_delay"].to_pylist(), strict=True))

    def correct(self, corrections: pa.Table) -> None:
        self._rows.update(zip(_keys(corrections), corrections["arr_delay"].to_pylist(), strict=True))

    def delete(self, gone: pa.Table) -> None:
        for key in _keys(gone):
            self._rows.pop(key, None)

    def check(self, found: pa.Table) -> None:
        delays = sum(value for value in self._rows.values() if value is not None)
        got = pc.sum(found["arr_delay"]).as_py()
        if found.num_rows != len(self._rows) or abs(got - delays) > 1e-6:
            raise SystemExit(
                f"the table holds {found.num_rows:,} flights with {got} minutes of delay; "
                f"the source says {len(self._rows):,} and {delays}"
            )


def _keys(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(rows[name].to_pylist() for name in KEY), strict=True)


if __name__ == "__main__":
    main()

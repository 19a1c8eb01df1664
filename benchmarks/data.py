"""Data sets: TPC-H lineitem with batches, and generated rows for the curves; each with the answers that Arrow computes.

`tpchgen-cli` makes lineitem (scale 1 is 6 million rows). Added columns: `l_shipyear`, the year of l_shipdate as text, which
partitions the table into 7, and `ts`, 0 in base rows and otherwise the number of the batch. Batches in their order:

    upsert-1, upsert-10      1 % and 10 % of the rows updated, 0.1 % inserted
    delete                   0.1 % of the rows, by key
    small, small-cold, last  990 rows updated, 10 inserted

Rows are drawn evenly from the whole table, so every batch affects every partition: the hard case for copy on write. An update
changes l_extendedprice, l_comment and ts; an insert copies a row under a new key. One seed determines everything. Files are
kept under artifacts/bench/data.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import fingerprint, queries
from benchmarks.environments import ROOT, prepare_python

FOLDER = ROOT / "artifacts" / "bench" / "data"
SEED = 20_241_216
BASE_FILES = 4
UPDATES, INSERTS = 990, 10
ROWS_OF_A_FILE = 500_000

_TYPES: dict[str, pa.DataType] = {
    "decimal": pa.decimal128(15, 2),
    "text": pa.string(),
    "date": pa.date32(),
    "integer": pa.int64(),
}
SCHEMA = pa.schema(
    [(name, pa.int32() if name == "l_linenumber" else _TYPES[kind]) for name, (_, kind) in fingerprint.COLUMNS.items()]
)

# Rows of a batch: a share of the table, or a number of rows.
_BATCHES: tuple[tuple[str, float | int, float | int], ...] = (
    ("upsert-1", 0.01, 0.001),
    ("upsert-10", 0.1, 0.001),
    ("delete", 0.001, 0),
    ("small", UPDATES, INSERTS),
    ("small-cold", UPDATES, INSERTS),
    ("last", UPDATES, INSERTS),
)
BATCH_NAMES = tuple(name for name, _, _ in _BATCHES)


@dataclass(frozen=True, slots=True)
class Inputs:
    """One data set on disk. lookups: keys of the point lookups; condition: that of the filtered read."""

    folder: Path
    layout: str
    row_count: int
    lookups: tuple[tuple[int, int], ...] = ()
    condition: queries.Condition = field(default=queries.FILTER)

    def files(self, batch: str) -> list[str]:
        """Parquet files of a batch; `base` has all rows of a new table."""
        return [str(path) for path in sorted((self.folder / batch).glob("*.parquet"))]

    def expected(self, batches: Sequence[str]) -> dict[str, Any]:
        """Answer of each query after these batches, `base` first; `state` is the fingerprint of the table."""
        names = list(dict.fromkeys(batches))
        store = self.folder / f"expected-{'-'.join(names)}.json"
        if not store.exists():
            store.write_text(json.dumps(self._compute(names)))
        found: dict[str, Any] = json.loads(store.read_text())
        return found

    def _compute(self, names: Sequence[str]) -> dict[str, Any]:
        table = newest = self._load(names[0])
        for name in names[1:]:
            newest = self._load(name)
            table = apply_batch(table, newest, keys=queries.LAYOUTS[self.layout].keys, delete=name == "delete")
        if self.layout == "lineitem":
            answers = queries.expected_answers(table, self.lookups)
            whole = newest.column_names == SCHEMA.names
            answers["row-count"] = table.num_rows
            return {**answers, "state": answers["full-read"], **({"incremental": _fingerprint(newest)} if whole else {})}
        every, filtered = (
            fingerprint.of_rows(rows.to_batches()) for rows in (table, table.filter(queries.to_arrow(self.condition)))
        )
        return {"state": every, "full-read": every, "filtered-read": filtered}

    def _load(self, batch: str) -> pa.Table:
        names = None if self.layout == "lineitem" else ["id", "part", "ts"]
        return pa.concat_tables([pq.read_table(path, columns=names) for path in self.files(batch)]).combine_chunks()


def load_lineitem(scale: float) -> Inputs:
    """The data set of this scale, created if absent. Raises EnvironmentMissing without tpchgen-cli."""
    folder = FOLDER / f"lineitem-{scale:g}"
    if not (folder / "inputs.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        store_lineitem(_generated(folder / "raw", scale), folder)
    document = json.loads((folder / "inputs.json").read_text())
    return Inputs(folder, "lineitem", document["row_count"], tuple((order, line) for order, line in document["lookups"]))


def load_rows(count: int, changed: int, partitions: int, columns: int = 8) -> Inputs:
    """Generated rows (id, part, ts and int64 columns), and the batch `small` that updates neighbours in one partition."""
    folder = FOLDER / f"rows-{count}-{changed}-{partitions}-{columns}"
    numbers = neighbours(changed, count, partitions)
    if not (folder / "small").exists():
        for place, start in enumerate(range(0, count, ROWS_OF_A_FILE)):
            part = generate(range(start, min(start + ROWS_OF_A_FILE, count)), 0, partitions, columns)
            write_rows(part, folder / "base" / f"part-{place:04}.parquet")
        write_rows(generate(numbers, 1, partitions, columns), folder / "small" / "part.parquet")
    return Inputs(folder, "rows", count, (), (("part", "=", f"p{numbers[0] % partitions:05}"),))


def generate(numbers: Sequence[int], ts: int, partitions: int, columns: int) -> pa.Table:
    """Rows with these numbers, which go to the partitions in turn."""
    values = pa.array(numbers, pa.int64())
    made = {
        "id": pa.array([f"key-{number:010}" for number in numbers]),
        "part": pa.array([f"p{number % partitions:05}" for number in numbers]),
        "ts": pa.array(np.full(len(numbers), ts), pa.int64()),
    }
    return pa.table({**made, **{f"n{place}": values for place in range(columns)}})


def neighbours(count: int, table_rows: int, partitions: int) -> list[int]:
    """Numbers of one partition, from the middle of the table."""
    start = table_rows // 2 // partitions * partitions
    return list(range(start, min(table_rows, start + count * partitions), partitions))


def random_batch(table: pa.Table, number: int, update_count: int, insert_count: int) -> pa.Table:
    """Updates of rows of `table`, and inserts, with ts = `number`, which also seeds the draw; keys are unique."""
    draw = np.random.default_rng((SEED, number))
    updated = table.take(np.sort(draw.choice(table.num_rows, size=update_count, replace=False)))
    price = pc.add(updated["l_extendedprice"], pa.scalar(Decimal("1.00"), pa.decimal128(15, 2))).cast(pa.decimal128(15, 2))
    comment = pc.binary_join_element_wise("batch", str(number), updated["l_comment"], " ")
    updated = _with(updated, l_extendedprice=price, l_comment=comment)
    inserted = table.take(draw.choice(table.num_rows, size=insert_count, replace=False))
    highest = pc.max(table["l_orderkey"]).as_py()
    new_keys = pa.array(np.arange(highest + 1, highest + 1 + insert_count), pa.int64())
    inserted = _with(inserted, l_orderkey=new_keys, l_linenumber=pa.array(np.ones(insert_count), pa.int32()))
    batch = pa.concat_tables([updated, inserted])
    return _with(batch, ts=pa.array(np.full(batch.num_rows, number), pa.int64())).combine_chunks()


def apply_batch(
    table: pa.Table, batch: pa.Table, *, keys: Sequence[str] = queries.LINEITEM.keys, delete: bool = False
) -> pa.Table:
    """The table after an upsert of `batch`, or after the deletion of its keys."""
    kept = table.join(batch.select(keys), list(keys), join_type="left anti", use_threads=False).select(table.column_names)
    return kept if delete else pa.concat_tables([kept, batch]).combine_chunks()


def write_rows(table: pa.Table, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="snappy", row_group_size=128 * 1024)


def store_lineitem(table: pa.Table, folder: Path) -> None:
    """Write base rows and batches of a lineitem table."""
    size = -(-table.num_rows // BASE_FILES)
    for number in range(BASE_FILES):
        write_rows(table.slice(number * size, size), folder / "base" / f"part-{number}.parquet")
    rows = row_count = table.num_rows
    for number, (name, updates, inserts) in enumerate(_BATCHES, start=1):
        counts = [round(rows * part) if isinstance(part, float) else part for part in (updates, inserts)]
        batch = random_batch(table, number, counts[0], counts[1])
        delete = name == "delete"
        write_rows(batch.select(queries.DELETE_COLUMNS) if delete else batch, folder / name / "part.parquet")
        table = apply_batch(table, batch, delete=delete)
    newest = batch.slice(0, UPDATES).take(list(range(0, UPDATES, UPDATES // queries.LOOKUP_COUNT)))
    lookups = list(zip(newest["l_orderkey"].to_pylist(), newest["l_linenumber"].to_pylist(), strict=True))
    (folder / "inputs.json").write_text(json.dumps({"row_count": row_count, "lookups": lookups}))


def _generated(folder: Path, scale: float) -> pa.Table:
    generator = prepare_python("data").parent / "tpchgen-cli"
    subprocess.run([generator, "parquet", "-s", f"{scale:g}", "--tables=lineitem", "-o", folder, "--quiet"], check=True)
    table = pq.read_table(folder / "lineitem.parquet")
    shutil.rmtree(folder)
    table = table.append_column("l_shipyear", pc.year(table["l_shipdate"]).cast(pa.string()))
    table = table.append_column("ts", pa.array(np.zeros(table.num_rows), pa.int64()))
    return table.select(SCHEMA.names).cast(SCHEMA).combine_chunks()


def _with(table: pa.Table, **columns: Any) -> pa.Table:
    for name, values in columns.items():
        position = table.schema.get_field_index(name)
        table = table.set_column(position, table.schema.field(position), values)
    return table


def _fingerprint(table: pa.Table) -> fingerprint.Fingerprint:
    return fingerprint.of_batches(table.to_batches())

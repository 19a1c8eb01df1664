"""The rows that every system gets: TPC-H lineitem, batches on top of it, and what the table must hold after each.

`tpchgen-cli` makes lineitem at the scale asked for (scale 1 = 6 million rows). Two columns are added: `l_shipyear`, the year of
l_shipdate as text, which partitions the table into 7; and `ts`, the ordering column, 0 in the base rows and the number of the
batch in a batch. The key is (l_orderkey, l_linenumber). The batches, in the order in which they are applied:

    upsert-1      1 % of the rows updated, 0.1 % inserted
    upsert-10    10 % of the rows updated, 0.1 % inserted
    delete        0.1 % of the rows, by key
    small        990 rows updated, 10 inserted
    small-cold   the same again, for a fresh process
    last         the same again, before the reads

Rows are drawn evenly from the whole table, so that a batch meets every partition: the hard case for copy on write. An update
changes l_extendedprice, l_comment and ts; an insert copies a row under a new key. Everything follows from one seed. The expected
state is computed here, with Arrow alone, and is what the systems are compared with: not only with each other. Made once per
scale, kept under artifacts/bench/data.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
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
# Of a small batch.
UPDATES, INSERTS = 990, 10

SCHEMA = pa.schema(
    [
        ("l_orderkey", pa.int64()),
        ("l_partkey", pa.int64()),
        ("l_suppkey", pa.int64()),
        ("l_linenumber", pa.int32()),
        ("l_quantity", pa.decimal128(15, 2)),
        ("l_extendedprice", pa.decimal128(15, 2)),
        ("l_discount", pa.decimal128(15, 2)),
        ("l_tax", pa.decimal128(15, 2)),
        ("l_returnflag", pa.string()),
        ("l_linestatus", pa.string()),
        ("l_shipdate", pa.date32()),
        ("l_commitdate", pa.date32()),
        ("l_receiptdate", pa.date32()),
        ("l_shipinstruct", pa.string()),
        ("l_shipmode", pa.string()),
        ("l_comment", pa.string()),
        ("l_shipyear", pa.string()),
        ("ts", pa.int64()),
    ]
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
    """One data set on disk. `states[name]` is what the table holds once the batches up to `name` are applied; `base` is before
    any.

    `answers[query]` is what a query answers after all batches.
    """

    folder: Path
    scale: float
    row_count: int
    lookups: tuple[tuple[int, int], ...]
    states: dict[str, fingerprint.Fingerprint]
    answers: dict[str, Any]

    def base_files(self) -> tuple[str, ...]:
        return tuple(str(path) for path in sorted((self.folder / "base").glob("*.parquet")))

    def batch_file(self, name: str) -> str:
        return str(self.folder / f"{name}.parquet")


def load_inputs(scale: float) -> Inputs:
    """The data set of this scale, made when it is not there yet. Raises EnvironmentMissing when tpchgen-cli cannot be had."""
    folder = FOLDER / f"scale-{scale:g}"
    description = folder / "inputs.json"
    if not description.exists():
        making = folder.with_name(folder.name + "-making")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        _make(making, scale)
        shutil.rmtree(folder, ignore_errors=True)
        making.rename(folder)
    said = json.loads(description.read_text())
    lookups = tuple((int(order), int(line)) for order, line in said["lookups"])
    return Inputs(folder, scale, said["row_count"], lookups, said["states"], said["answers"])


def load_base(inputs: Inputs) -> pa.Table:
    """All base rows, in key order."""
    return pa.concat_tables([pq.read_table(path) for path in inputs.base_files()]).combine_chunks()


def random_batch(table: pa.Table, number: int, update_count: int, insert_count: int) -> pa.Table:
    """Updates of rows of `table` and inserts, with ts = `number`, which also seeds the draw. Shape: SCHEMA, keys unique, in no
    order.
    """
    draw = np.random.default_rng((SEED, number))
    updated = table.take(np.sort(draw.choice(table.num_rows, size=update_count, replace=False)))
    price = pc.add(updated["l_extendedprice"], pa.scalar(Decimal("1.00"), pa.decimal128(15, 2))).cast(pa.decimal128(15, 2))
    updated = _with(
        updated, l_extendedprice=price, l_comment=pc.binary_join_element_wise("batch", str(number), updated["l_comment"], " ")
    )
    inserted = table.take(draw.choice(table.num_rows, size=insert_count, replace=False))
    highest = pc.max(table["l_orderkey"]).as_py()
    new_keys = pa.array(np.arange(highest + 1, highest + 1 + insert_count), pa.int64())
    inserted = _with(inserted, l_orderkey=new_keys, l_linenumber=pa.array(np.ones(insert_count), pa.int32()))
    batch = pa.concat_tables([updated, inserted])
    return _with(batch, ts=pa.array(np.full(batch.num_rows, number), pa.int64())).combine_chunks()


def apply_batch(table: pa.Table, batch: pa.Table, *, delete: bool) -> pa.Table:
    """The table after an upsert of `batch`, or after the deletion of its keys."""
    kept = table.filter(pa.array(~np.isin(_keys(table), _keys(batch), assume_unique=True)))
    return kept if delete else pa.concat_tables([kept, batch]).combine_chunks()


def write_rows(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, compression="snappy", row_group_size=128 * 1024)


def _make(folder: Path, scale: float) -> None:
    generator = prepare_python("data").parent / "tpchgen-cli"
    raw = folder / "raw"
    subprocess.run([generator, "parquet", "-s", f"{scale:g}", "--tables=lineitem", "-o", raw, "--quiet"], check=True)
    table = _shaped(pq.read_table(raw / "lineitem.parquet"))
    shutil.rmtree(raw)
    (folder / "base").mkdir()
    size = -(-table.num_rows // BASE_FILES)
    for number in range(BASE_FILES):
        write_rows(table.slice(number * size, size), folder / "base" / f"part-{number}.parquet")
    states = {}
    for name, state in _states(table, folder):
        states[name] = fingerprint.of_batches(state.to_batches())
    last = pq.read_table(folder / "last.parquet")
    newest = last.take(list(range(0, UPDATES, UPDATES // queries.LOOKUP_COUNT)))
    lookups = list(zip(newest["l_orderkey"].to_pylist(), newest["l_linenumber"].to_pylist(), strict=True))
    answers = queries.expected_answers(state, lookups)
    answers["incremental"] = fingerprint.of_batches(last.to_batches())
    said = {"row_count": table.num_rows, "lookups": lookups, "states": states, "answers": answers}
    (folder / "inputs.json").write_text(json.dumps(said, indent=1))


def _states(table: pa.Table, folder: Path) -> Iterator[tuple[str, pa.Table]]:
    """Writes the batches and gives the table before the first and after each."""
    yield "base", table
    rows = table.num_rows
    for number, (name, updates, inserts) in enumerate(_BATCHES, start=1):
        counts = [round(rows * part) if isinstance(part, float) else part for part in (updates, inserts)]
        batch = random_batch(table, number, counts[0], counts[1])
        delete = name == "delete"
        write_rows(batch.select(queries.DELETE_COLUMNS) if delete else batch, folder / f"{name}.parquet")
        table = apply_batch(table, batch, delete=delete)
        yield name, table


def _shaped(raw: pa.Table) -> pa.Table:
    """The generator's columns with plain types, and the two that are ours."""
    year = pc.year(raw["l_shipdate"]).cast(pa.string())
    order = pa.array(np.zeros(raw.num_rows), pa.int64())
    whole = raw.append_column("l_shipyear", year).append_column("ts", order)
    return whole.select(SCHEMA.names).cast(SCHEMA).combine_chunks()


def _with(table: pa.Table, **columns: Any) -> pa.Table:
    for name, values in columns.items():
        position = table.schema.get_field_index(name)
        table = table.set_column(position, table.schema.field(position), values)
    return table


def _keys(table: pa.Table) -> np.ndarray:
    """One number per key: l_linenumber is below 8."""
    keys: np.ndarray = table["l_orderkey"].to_numpy() * 8 + table["l_linenumber"].to_numpy()
    return keys

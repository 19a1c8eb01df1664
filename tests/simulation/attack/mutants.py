"""Damaged bytes against readers: of each mutant of a file that PyHudi wrote, the right rows or a HudiError, never other rows.

    python -m tests.simulation.attack.mutants --seed 7 --count 100000 [--minutes 30]

A mutant is one file of a small table with one change: flipped bits, zeros, ones, a cut, or bytes that are repeated, moved or
left out.  The table is opened and read: all of it, with a filter, as of its oldest active instant, and its changes since the
beginning, which lie in the history in part; then the file is put back.  What was served wrong is printed with the seed
and the number of the mutant, which make it again.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from pyhudi import Table
from pyhudi.errors import HudiError
from pyhudi.storage import Storage, open_storage
from pyhudi.storage.environment import ReplayEnvironment

OPTIONS = {
    "hoodie.index.bloom.num_entries": 100,
    "hoodie.bloom.index.filter.type": "SIMPLE",
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.parquet.page.size": 500,
    "hoodie.compact.inline": False,
    "hoodie.clean.automatic": False,
    "pyhudi.threads": 1,
}
_ARCHIVAL = {"hoodie.clean.commits.retained": 1, "hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}
KINDS: dict[str, dict[str, object]] = {
    "copy on write": {"table_type": "cow", "hoodie.metadata.enable": False},
    "avro logs": {"table_type": "mor", "hoodie.metadata.enable": False},
    "parquet logs": {"table_type": "mor", "hoodie.metadata.enable": False, "hoodie.logfile.data.block.format": "parquet"},
    "hfile logs": {"table_type": "mor", "hoodie.metadata.enable": False, "hoodie.logfile.data.block.format": "hfile"},
    "metadata table": {"table_type": "mor", "hoodie.metadata.index.column.stats.enable": True},
}
FILTER = "v >= 900 and city = 'rome'"


@dataclass(frozen=True)
class Subject:
    """A table under attack.  files: all that hold bytes, those of its timelines and properties too.  read: what it gives."""

    kind: str
    table: Table
    storage: Storage
    files: dict[str, bytes]
    read: tuple[pa.Table, ...]


@dataclass(frozen=True)
class Mutant:
    number: int
    kind: str
    path: str
    change: str


def batch(numbers: range, value: int) -> pa.Table:
    return pa.table(
        {
            "id": [f"k{n:03}" for n in numbers],
            "ts": [value] * len(numbers),
            "v": [value + n if n % 5 else None for n in numbers],
            "city": [("rome", "oslo", "lima")[n % 3] for n in numbers],
            "tags": [[f"t{n}"] * (n % 3) for n in numbers],
        }
    )


def subject(kind: str, folder: str) -> Subject:
    """A table of that kind with two base files or one and its logs.  folder: where tables lie, a URI."""
    settings = dict(KINDS[kind])
    uri = f"{folder}/{kind.replace(' ', '_')}"
    table = Table.create(
        uri,
        record_key="id",
        ordering="ts",
        table_type=str(settings.pop("table_type")),
        options={**OPTIONS, **settings},
        environment=ReplayEnvironment(3),
    )
    table.insert(batch(range(60), 100))
    table.upsert(batch(range(0, 40, 2), 500))
    table.delete(pa.table({"id": ["k005", "k006"]}))
    table.upsert(batch(range(10, 30), 900))
    table.archive(options=_ARCHIVAL)
    storage = open_storage(uri)
    files = {info.path: storage.read(info.path) or b"" for info in sorted(storage.walk(""), key=lambda info: info.path)}
    return Subject(kind, table, storage, {path: data for path, data in files.items() if data}, read(table))


def read(table: Table) -> tuple[pa.Table, ...]:
    """The results of every type of read of the table, opened again: that reads the properties too."""
    opened = Table(table.uri, options=OPTIONS, environment=ReplayEnvironment(4))
    instants = opened.timeline().completed_writes()
    scans = (
        opened.scan(),
        opened.scan(filter=FILTER),
        opened.scan(as_of=instants[0].request_time),
        opened.incremental("000"),
    )
    return tuple(scan.to_arrow().sort_by("id") for scan in scans)


def changed(chance: random.Random, data: bytes) -> tuple[str, bytes]:
    """A mutant of some bytes, and what was done."""
    size = len(data)
    at = chance.randrange(size)
    length = min(size - at, chance.choice((1, 2, 8, 32, 200, size)))
    other = chance.randrange(size)
    how = chance.choice(("bit", "bit", "bit", "bits", "zeros", "ones", "cut", "repeat", "move", "leave out", "swap", "grow"))
    if how in ("bit", "bits"):
        flipped = bytearray(data)
        for _ in range(1 if how == "bit" else chance.randrange(2, 6)):
            flipped[at] ^= 1 << chance.randrange(8)
            at = chance.randrange(size)
        return how, bytes(flipped)
    if how in ("zeros", "ones"):
        return f"{how} {at}+{length}", data[:at] + (b"\0" if how == "zeros" else b"\xff") * length + data[at + length :]
    if how == "cut":
        return f"cut {at}", data[:at]
    if how == "repeat":
        return f"repeat {at}+{length}", data[: at + length] + data[at : at + length] + data[at + length :]
    if how == "move":
        piece = data[other : other + length]
        return f"{other} over {at}+{len(piece)}", (data[:at] + piece + data[at + len(piece) :])[:size]
    if how == "leave out":
        return f"leave out {at}+{length}", data[:at] + data[at + length :]
    if how == "swap":
        low, high = sorted((at, other))
        return f"swap {low} {high}", data[high:] + data[low:high] + data[:low]
    return f"grow {length}", data + data[at : at + length]


def attack(subjects: list[Subject], seed: int, first: int, count: int) -> Iterator[tuple[Mutant, str]]:
    """Mutants and what became of each: `same`, the name of an error, or `WRONG ...`."""
    for number in range(first, first + count):
        chance = random.Random(f"{seed}-{number}")
        one = chance.choice(subjects)
        path = chance.choice(list(one.files))
        how, data = changed(chance, one.files[path])
        mutant = Mutant(number, one.kind, path, how)
        if data == one.files[path]:
            continue
        one.storage.put(path, data)
        try:
            yield mutant, outcome(one)
        finally:
            one.storage.put(path, one.files[path])


def outcome(one: Subject) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = read(one.table)
    except HudiError as error:
        return type(error).__name__
    except Exception as error:
        return f"WRONG {type(error).__name__}: {error}"
    if found != one.read:
        return f"WRONG rows: {[rows.num_rows for rows in found]} for {[rows.num_rows for rows in one.read]}"
    return "same"


def main() -> int:
    parser = argparse.ArgumentParser(description="Damage files and read them.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutant")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument(
        "--folder", default="memory://mutants", help="where the tables are made: a URI; memory, or an empty folder"
    )
    parser.add_argument("--files", default="", help="a part of the names of those files that are damaged")
    chosen = parser.parse_args()
    subjects = [subject(kind, chosen.folder) for kind in KINDS]
    for one in subjects:
        for path in [path for path in one.files if chosen.files not in path]:
            del one.files[path]
    subjects = [one for one in subjects if one.files]
    seen: Counter[tuple[str, str]] = Counter()
    wrong = done = 0
    end = time.monotonic() + chosen.minutes * 60
    for mutant, became in attack(subjects, chosen.seed, chosen.first, chosen.count):
        done += 1
        if became.startswith("WRONG"):
            wrong += 1
            print(f"seed {chosen.seed}: {mutant}: {became}", flush=True)
        seen[mutant.kind, became.split(" ")[0]] += 1
        if time.monotonic() > end:
            break
    for (kind, became), times in sorted(seen.items()):
        print(f"{kind:16} {became:16} {times}")
    print(f"seed {chosen.seed}: {done} mutants, {wrong} served wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

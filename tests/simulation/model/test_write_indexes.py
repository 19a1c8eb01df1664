"""Keys stay unique and the record index correct, whichever index a write uses.

Indexes that identify records alike are mixed: those global over partitions, and those within a partition. Bucket
indexes are separate.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pyhudi import Table
from pyhudi.operations.commit.results import WriteResult
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.memory import MemoryStorage, forget_memory
from tests.support.shares import EACH_SHARE, Share, of_share

ANYWHERE = ("RECORD_INDEX", "GLOBAL_SIMPLE", "GLOBAL_BLOOM")
IN_PARTITION = ("SIMPLE", "BLOOM", "INMEMORY")
SECTIONS = ("RECORD_LEVEL_INDEX", "SIMPLE", "INMEMORY")
BUCKETS = ("BUCKET",)
SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])
PARTITIONED = {"hoodie.metadata.record.level.index.enable": True, "hoodie.write.table.version": 9}
_names = itertools.count()


@dataclass(frozen=True)
class Step:
    operation: str
    index: int
    rows: tuple[tuple[int, int], ...]


steps = st.lists(
    st.builds(
        Step,
        st.sampled_from(["upsert", "upsert", "upsert", "delete", "delete_anywhere", "delete_where", "insert", "compact", "undo"]),
        st.integers(0, 2),
        st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), min_size=1, max_size=6).map(tuple),
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize(
    "family", [ANYWHERE, IN_PARTITION, SECTIONS, BUCKETS], ids=["anywhere", "in partition", "sections", "buckets"]
)
@EACH_SHARE
def test_keys_stay_unique(family: tuple[str, ...], share: Share) -> None:
    @settings(max_examples=4 if share is Share.SMOKE else 8, phases=[Phase.generate], report_multiple_bugs=False)
    @given(script=steps, cow=st.booleans(), moves=st.booleans(), use_metadata=st.booleans())
    def check(script: list[Step], cow: bool, moves: bool, use_metadata: bool) -> None:
        check_script(family, script, cow, moves, use_metadata)

    of_share(check, share)()


def check_script(family: tuple[str, ...], script: list[Step], cow: bool, moves: bool, use_metadata: bool) -> None:
    name = f"indexes-{next(_names)}"
    env = ReplayEnvironment(5)
    MemoryStorage(f"memory://{name}", env)
    switches = ("bloom", "simple", "record")
    options: dict[str, Any] = {
        **{f"hoodie.{index}.index.update.partition.path": moves for index in switches},
        # A key that exists in two partitions has no single location in the record index.
        **({"hoodie.metadata.record.index.enable": family is ANYWHERE} if family is not SECTIONS else PARTITIONED),
        "hoodie.metadata.record.index.min.filegroup.count": 2,
        "hoodie.metadata.index.bloom.filter.enable": use_metadata,
        "hoodie.bloom.index.use.metadata": use_metadata,
        "hoodie.index.bloom.num_entries": 100,
        "hoodie.bucket.index.num.buckets": 2,
        "hoodie.copyonwrite.insert.auto.split": False,
        "hoodie.copyonwrite.insert.split.size": 3,
        "hoodie.compact.inline": False,
        "pyhudi.threads": 1,
    }
    table = Table.create(
        f"memory://{name}",
        record_key="id",
        partition_by="part",
        ordering="ts",
        table_type="cow" if cow else "mor",
        schema=SCHEMA,
        options=options,
        environment=env,
    )
    try:
        run(table, env, script, family, moves, merge_on_read=not cow)
    finally:
        forget_memory(name)


def run(
    table: Table, env: ReplayEnvironment, script: list[Step], family: tuple[str, ...], moves: bool, merge_on_read: bool
) -> None:
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    before: list[tuple[str, dict[tuple[str, str], dict[str, Any]]]] = []
    for number, step in enumerate(script):
        env.advance_ms(1000)
        index = family[step.index % len(family)]
        given_rows = {f"k{key}": {"id": f"k{key}", "part": f"p{part}", "ts": number} for key, part in step.rows}
        held = dict(rows)
        operation = step.operation
        if operation == "insert" and (merge_on_read or index == "BUCKET"):
            # Known keys are skipped by base files, which still contain keys that a log file deletes; buckets know no keys.
            operation = "upsert"
        if operation == "compact":
            if merge_on_read and table.compact().instant is not None:
                before.clear()
            continue
        if operation == "undo":
            if before:
                instant, rows = before.pop()
                table.rollback(instant)
                check(table, rows)
            continue
        result = write(table, operation, given_rows, index)
        change(rows, operation, given_rows, family, moves)
        if result.index is not None:
            assert result.index == index
        if result.instant is not None:
            before.append((result.instant, held))
        if family is ANYWHERE and merge_on_read and not moves:
            rows = where_they_are(table, rows)
        check(table, rows)
    report = table.validate()
    assert report.ok, str(report)


def write(table: Table, operation: str, rows: dict[str, dict[str, Any]], index: str) -> WriteResult:
    options: dict[str, Any] = {"hoodie.index.type": index}
    data = pa.Table.from_pylist(list(rows.values()), SCHEMA)
    if operation == "delete":
        return table.delete(data.select(["id", "part"]), options=options)
    if operation == "delete_anywhere":
        return table.delete(data.select(["id"]), options=options)
    if operation == "delete_where":
        return table.delete(where=f"id <= '{min(rows)}'", options=options)
    if operation == "insert":
        return table.insert(data, options={**options, "hoodie.datasource.insert.dup.policy": "drop"})
    return table.upsert(data, options=options)


def change(
    held: dict[tuple[str, str], dict[str, Any]],
    operation: str,
    rows: dict[str, dict[str, Any]],
    family: tuple[str, ...],
    moves: bool,
) -> None:
    for key, row in rows.items():
        home = next((name for name in held if name[1] == key), None) if family is ANYWHERE else None
        if operation == "delete":
            # Under an index that finds keys in every partition, the partition of a delete has no meaning.
            held.pop(home or (row["part"], key), None)
        elif operation == "delete_anywhere":
            for name in [name for name in held if name[1] == key]:
                del held[name]
        elif operation == "insert":
            if home is None:
                held.setdefault((row["part"], key), row)
        elif operation == "upsert":
            if home is not None and moves:
                del held[home]
                home = None
            held[home or (row["part"], key)] = row
    if operation == "delete_where":
        for name in [name for name in held if name[1] <= min(rows)]:
            del held[name]


def where_they_are(table: Table, rows: dict[tuple[str, str], dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """The rows by their partitions.

    A key that a log file deleted is still in the base file, so it may return there, or to the partition of its new row.
    """
    found = table.scan(["_hoodie_partition_path", "id"]).to_arrow().to_pylist()
    places = {row["id"]: row["_hoodie_partition_path"] for row in found}
    return {(places.get(key, path), key): row for (path, key), row in rows.items()}


def check(table: Table, rows: dict[tuple[str, str], dict[str, Any]]) -> None:
    found = table.scan(["_hoodie_partition_path", *SCHEMA.names]).to_arrow().to_pylist()
    stored = [((row["_hoodie_partition_path"], row["id"]), {name: row[name] for name in SCHEMA.names}) for row in found]
    assert len(dict(stored)) == len(stored), "a key stands twice"
    assert dict(stored) == rows

"""Log compaction does not change the result of payload classes and mergers, before and after more writes and
compaction.
"""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import pyhudi as hp
from pyhudi import Table
from pyhudi.errors import Unsupported
from pyhudi.records.record_merge import choose_rows
from pyhudi.storage.environment import ReplayEnvironment
from tests.support.needs import WIDE
from tests.support.payload_model import KEYS, PAYLOADS, SCHEMA, Delete, Key, deletes, drawn_row
from tests.support.rows import assert_same_rows, without_meta

OPTIONS: dict[str, Any] = {
    "hoodie.compact.inline": False,
    "hoodie.clean.automatic": False,
    "hoodie.metadata.enable": False,
    "hoodie.index.bloom.num_entries": 100,
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.log.compaction.blocks.threshold": 1,
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("seed", range(6 if WIDE else 1))
def test_any_order_of_writes_and_services(payload: str, seed: int) -> None:
    draw = random.Random(f"{payload} {seed}")
    options = {**OPTIONS, "hoodie.datasource.write.payload.class": PAYLOADS[payload]}
    table = Table.create(
        f"memory://payloads-{payload}-{seed}",
        record_key="id",
        partition_by="part",
        ordering="ts",
        table_type="mor",
        options=options,
        environment=ReplayEnvironment(seed),
    )
    keys: dict[str, Key] = {}
    first = {key: {**drawn_row(draw, payload, key), "_hoodie_is_deleted": False, "Op": "I"} for key in KEYS[:10]}
    first = {key: {**row, "_change_operation_type": "c", "a": "first"} for key, row in first.items()}
    table.insert(pa.Table.from_pylist(list(first.values()), SCHEMA))
    keys.update({key: Key(row) for key, row in first.items()})
    merged = 0
    for step in range(40 if WIDE else 14):
        what = draw.choice(["upsert"] * 5 + ["delete"] + ["log compaction"] * 2 + ["compaction"] * (step % 4 == 3))
        if what == "upsert":
            waiting = {key for key, held in keys.items() if held.waits(payload)}
            rows = [drawn_row(draw, payload, key) for key in draw.sample(sorted({*KEYS[:10]} - waiting), 4)]
            table.upsert(
                pa.Table.from_pylist(rows, SCHEMA), options={"hoodie.logfile.data.block.format": draw.choice(["avro", "parquet"])}
            )
            for row in rows:
                written, gone = keys[row["id"]], deletes(payload, row)
                if written.base is not None:
                    written.log.append(Delete(row["ts"]) if gone else row)
                elif not gone:
                    written.base = row
        elif what == "delete":
            there = [key for key, held in sorted(keys.items()) if held.row(payload) is not None]
            gone_keys = draw.sample(there, min(1, len(there)))
            if gone_keys:
                table.delete(keys=pa.Table.from_pylist([first[key] for key in gone_keys], SCHEMA).select(["id", "part"]))
            for key in gone_keys:
                keys[key].log.append(Delete(keys[key].newest()))
        elif what == "log compaction":
            if table.log_compact().runs:
                merged += 1
                for held in keys.values():
                    held.log_compact(payload)
        elif table.compact().runs:
            for held in keys.values():
                held.planned = len(held.log)
                held.compact(payload)
        expected = [left for held in keys.values() if (left := held.row(payload)) is not None]
        try:
            found = without_meta(table.scan(["*"]).to_arrow())
            assert_same_rows(found, pa.Table.from_pylist(expected, SCHEMA), key=["id"])
        except AssertionError as error:
            error.add_note(f"{payload}, seed {seed}, step {step}: {what}")
            raise
    assert merged >= 1


class Larger:
    """The row with the larger value stays: merging it with itself changes nothing."""

    strategy_id = "6f1e3a52-0d1c-4a44-8f5a-7f2f0f7a9d01"

    def merge(self, older: pa.Table, newer: pa.Table) -> tuple[pa.Table, None]:
        keep = pc.greater(older["value"], newer["value"]).to_numpy()
        return choose_rows(older, newer, ~keep), None


class Sum:
    """Values are summed: a reader that reads a merged block in addition to its sources counts twice."""

    strategy_id = "6f1e3a52-0d1c-4a44-8f5a-7f2f0f7a9d02"

    def merge(self, older: pa.Table, newer: pa.Table) -> tuple[pa.Table, None]:
        place = newer.schema.get_field_index("value")
        return newer.set_column(place, newer.schema.field(place), pc.add(older["value"], newer["value"])), None


class Cancels(Larger):
    """Equal values are removed."""

    strategy_id = "6f1e3a52-0d1c-4a44-8f5a-7f2f0f7a9d03"

    def merge(self, older: pa.Table, newer: pa.Table) -> tuple[pa.Table, Any]:
        rows, _ = super().merge(older, newer)
        return rows, pc.not_equal(older["value"], newer["value"])


def by_merger(merger: Any) -> Table:
    hp.register_merger(merger)
    table = Table.create(
        f"memory://{merger.strategy_id}",
        record_key="id",
        table_type="mor",
        options={
            **OPTIONS,
            "hoodie.write.record.merge.mode": "CUSTOM",
            "hoodie.write.record.merge.strategy.id": merger.strategy_id,
        },
        environment=ReplayEnvironment(1),
    )
    table.insert(values(a=5, b=5, c=5))
    table.upsert(values(a=6, b=3))
    table.upsert(values(a=4, b=3))
    return table


def values(**of: int) -> pa.Table:
    return pa.table({"id": list(of), "value": pa.array(list(of.values()), pa.int64())})


def seen(table: Table) -> dict[str, int]:
    found = table.scan(["id", "value"]).to_arrow()
    return dict(zip(found["id"].to_pylist(), found["value"].to_pylist(), strict=True))


def test_a_merger_whose_records_stay_what_they_are() -> None:
    table = by_merger(Larger())
    before = seen(table)
    assert before == {"a": 6, "b": 5, "c": 5}
    assert table.log_compact().runs
    assert seen(table) == before
    table.upsert(values(a=9, b=1))
    table.delete(keys=values(c=0).select(["id"]))
    table.upsert(values(c=1))
    after = {"a": 9, "b": 5, "c": 1}
    assert seen(table) == after
    assert table.log_compact().runs
    assert seen(table) == after, "the delete still stands between the base row and what followed"
    table.compact()
    assert seen(table) == after


@pytest.mark.parametrize("merger", [Sum(), Cancels()])
def test_a_merger_that_would_count_twice_is_refused(merger: Any) -> None:
    table = by_merger(merger)
    before = seen(table)
    with pytest.raises(Unsupported, match=f"merger {merger.strategy_id} .* compact instead.*file group"):
        table.log_compact()
    assert seen(table) == before
    assert not table.timeline().pending(), "the plan is gone with the attempt"
    table.compact()
    assert seen(table) == before

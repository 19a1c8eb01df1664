from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import data
from tests.support.benchmark_rows import lineitem

ROWS = lineitem(200)


def keys(table: pa.Table) -> set[tuple[int, int]]:
    return set(zip(table["l_orderkey"].to_pylist(), table["l_linenumber"].to_pylist(), strict=True))


def test_a_batch_updates_and_inserts_as_many_rows_as_asked() -> None:
    batch = data.random_batch(ROWS, 3, 50, 7)
    assert batch.schema == data.SCHEMA
    assert len(keys(batch)) == batch.num_rows == 57
    assert len(keys(batch) & keys(ROWS)) == 50
    assert set(batch["ts"].to_pylist()) == {3}


def test_an_update_changes_price_and_comment_and_keeps_the_partition() -> None:
    batch = data.random_batch(ROWS, 3, 200, 0)
    before = {
        key: row
        for key, row in zip(
            sorted(keys(ROWS)),
            ROWS.sort_by([("l_orderkey", "ascending"), ("l_linenumber", "ascending")]).to_pylist(),
            strict=True,
        )
    }
    for row in batch.to_pylist():
        old = before[row["l_orderkey"], row["l_linenumber"]]
        assert row["l_extendedprice"] == old["l_extendedprice"] + Decimal(1)
        assert row["l_comment"] == f"batch 3 {old['l_comment']}"
        assert row["l_shipyear"] == old["l_shipyear"]


def test_batches_follow_from_their_number() -> None:
    assert data.random_batch(ROWS, 3, 50, 7).equals(data.random_batch(ROWS, 3, 50, 7))
    assert not data.random_batch(ROWS, 4, 50, 7)["l_orderkey"].equals(data.random_batch(ROWS, 3, 50, 7)["l_orderkey"])


def test_an_upsert_replaces_by_key_and_adds() -> None:
    batch = data.random_batch(ROWS, 3, 50, 7)
    after = data.apply_batch(ROWS, batch, delete=False)
    assert keys(after) == keys(ROWS) | keys(batch)
    assert after.num_rows == 207
    assert pc.sum(pc.equal(after["ts"], 3)).as_py() == 57


def test_a_delete_removes_by_key() -> None:
    batch = data.random_batch(ROWS, 3, 50, 0)
    after = data.apply_batch(ROWS, batch.select(["l_orderkey", "l_linenumber"]), delete=True)
    assert keys(after) == keys(ROWS) - keys(batch)

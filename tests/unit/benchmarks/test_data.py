from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from benchmarks import data, fingerprint
from tests.support.benchmark_rows import lineitem

ROWS = lineitem(200)


def keys(table: pa.Table) -> set[tuple[int, int]]:
    return set(zip(table["l_orderkey"].to_pylist(), table["l_linenumber"].to_pylist(), strict=True))


def test_batch_updates_and_inserts_the_requested_rows() -> None:
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


def test_expected_answers_follow_the_batches_of_a_chain(tmp_path: Path) -> None:
    rows = lineitem(1200)
    data.store_lineitem(rows, tmp_path)
    inputs = data.Inputs(tmp_path, "lineitem", rows.num_rows, ((1, 1),))
    base, upserted = inputs.expected(["base"]), inputs.expected(["base", "upsert-10", "upsert-10"])
    assert base["state"] == fingerprint.of_batches(rows.to_batches())
    assert upserted["row-count"] == 1201 and upserted["incremental"]["rows"] == 121
    assert upserted == inputs.expected(["base", "upsert-10"])
    assert "incremental" not in inputs.expected(["base", "delete"])


def test_generated_rows_change_neighbours_in_one_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "FOLDER", tmp_path)
    inputs = data.load_rows(100, 4, 7, 2)
    assert data.neighbours(4, 100, 7) == [49, 56, 63, 70]
    assert inputs.expected(["base", "small"]) == {
        "state": {"rows": 100, "ts": 4},
        "full-read": {"rows": 100, "ts": 4},
        "filtered-read": {"rows": 15, "ts": 4},
    }

"""Partial updates change some columns of existing records, on both table types and in both merge modes."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi import Table
from pyhudi.errors import InvalidRequest, TableState, Unsupported
from pyhudi.format.log.framing import HeaderKey, LogBlock
from pyhudi.table.snapshot import load_snapshot
from pyhudi.tasks.log_scan import read_headers
from tests.support.summing_merger import Sums

_names = itertools.count()
Row = tuple[Any, ...]
SMALL = {"hoodie.index.bloom.num_entries": 100, "hoodie.bloom.index.filter.type": "SIMPLE", "hoodie.compact.inline": False}


def made(table_type: str = "mor", /, *, mode: str = "EVENT_TIME_ORDERING", **options: Any) -> Table:
    table = Table.create(
        f"memory://partial-{next(_names)}",
        name="t",
        record_key="id",
        partition_by="part",
        ordering="ts",
        table_type=table_type,
        options={
            "hoodie.parquet.small.file.limit": 0,
            **SMALL,
            **({"hoodie.write.record.merge.mode": mode} if mode else {}),
            **options,
        },
    )
    rows = [{"id": key, "part": "p", "ts": 5, "a": f"a-{key}", "b": n, "c": [n]} for n, key in enumerate("wxyz")]
    table.insert(pa.Table.from_pylist(rows))
    return table


def update(table: Table, *rows: dict[str, Any], **options: object) -> Any:
    data = pa.Table.from_pylist([{"part": "p", **row} for row in rows])
    for at, field in enumerate(data.schema):
        if pa.types.is_null(field.type):
            data = data.set_column(at, field.name, pa.nulls(data.num_rows, pa.string()))
    return table.upsert(data, partial=True, options=options)


def seen(table: Table) -> dict[str, Row]:
    rows = table.scan(["id", "ts", "a", "b", "c"]).to_arrow().to_pylist()
    return {row["id"]: (row["ts"], row["a"], row["b"], row["c"]) for row in rows}


def partial_blocks(table: Table) -> list[LogBlock]:
    snapshot = load_snapshot(table.context)
    logs = [log for found in snapshot.slices(None).values() for slice_ in found for log in slice_.logs]
    return [b for log in logs for b in read_headers(table.context.storage, log) if isinstance(b, LogBlock) and b.is_partial]


KINDS = list(itertools.product(("mor", "cow"), ("EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING")))


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("table_type", "mode", "compact"),
    [*((*kind, False) for kind in KINDS), *((*kind, True) for kind in KINDS if kind[0] == "mor")],
)
def test_columns_that_are_not_given_keep_their_values(table_type: str, mode: str, compact: bool) -> None:
    table = made(table_type, mode=mode)
    by_event = mode == "EVENT_TIME_ORDERING"
    result = update(table, {"id": "w", "ts": 6, "a": "new"}, {"id": "gone", "ts": 6, "a": "new"})
    assert (result.rows_updated, result.rows_inserted) == (1, 0)
    update(table, {"id": "w", "ts": 7, "b": 70}, {"id": "x", "ts": 4, "b": 40})
    update(table, {"id": "y", "ts": 9, "a": None})
    if compact:
        table.compact()
        assert not partial_blocks(table)
    assert seen(table) == {
        "w": (7, "new", 70, [0]),
        "x": (5, "a-x", 1, [1]) if by_event else (4, "a-x", 40, [1]),
        "y": (9, None, 2, [2]),
        "z": (5, "a-z", 3, [3]),
    }


def test_partial_blocks_contain_only_given_columns_and_are_flagged() -> None:
    table = made()
    update(table, {"id": "y", "ts": 6, "a": "new"}, {"id": "w", "ts": 6, "a": "new"})
    (block,) = partial_blocks(table)
    schema = block.required(HeaderKey.SCHEMA)
    assert '"name":"a"' in schema.replace(" ", "")
    assert '"name":"b"' not in schema.replace(" ", "")
    assert block.header(HeaderKey.RECORD_POSITIONS) is not None


def test_commit_time_ordering_writes_complete_rows() -> None:
    table = made(mode="COMMIT_TIME_ORDERING")
    update(table, {"id": "y", "ts": 6, "a": "new"})
    assert not partial_blocks(table)


def test_all_columns_are_no_partial_update() -> None:
    table = made()
    update(table, {"id": "y", "ts": 6, "a": "new", "b": 1, "c": [9]}, {"id": "no", "ts": 6, "a": "new", "b": 1, "c": [9]})
    assert not partial_blocks(table)
    assert seen(table)["y"] == (6, "new", 1, [9])
    assert "no" not in seen(table)


STEPS = ("pfp", "ppf", "fpp", "pdfp", "fpdp", "pplpfp", "fpldlfp")


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("mode", "steps"),
    [
        *(("EVENT_TIME_ORDERING", steps) for steps in STEPS),
        # By commit time whole rows are written, for which the longest ones do.
        *(pytest.param("COMMIT_TIME_ORDERING", steps, marks=pytest.mark.wide) for steps in STEPS[:-2]),
        *(("COMMIT_TIME_ORDERING", steps) for steps in STEPS[-2:]),
    ],
)
def test_mixed_partial_and_full_updates_and_deletes(steps: str, mode: str) -> None:
    """Against the same steps applied to a dict, whose rows have rising ordering values; `l` compacts the logs."""
    table = made(mode=mode, **{"hoodie.log.compaction.blocks.threshold": 2})
    expected: dict[str, Row] = seen(table)
    for ts, step in enumerate(steps, 10):
        if step == "f":
            row = {"id": "x", "part": "p", "ts": ts, "a": f"f{ts}", "b": None, "c": None}
            table.upsert(pa.Table.from_pylist([row], load_snapshot(table.context).schema.arrow))  # type: ignore[union-attr]
            expected["x"] = (ts, f"f{ts}", None, None)
        elif step == "d":
            table.delete(pa.table({"id": ["x"], "part": ["p"]}))
            expected.pop("x")
        elif step == "l":
            assert table.log_compact().runs
        else:
            update(table, {"id": "x", "ts": ts, "b": ts})
            if "x" in expected:
                expected["x"] = (ts, expected["x"][1], ts, expected["x"][3])
        assert seen(table) == expected, (step, ts)
    table.compact()
    assert seen(table) == expected


@pytest.mark.parametrize("table_type", ["mor", "cow"])
def test_by_bucket(table_type: str) -> None:
    """Keys are not looked up to find their group, and still those that are not there bring nothing."""
    buckets: dict[str, Any] = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 2}
    table = made(table_type, **buckets)
    update(table, {"id": "w", "ts": 6, "a": "new"}, *({"id": f"gone-{n}", "ts": 6, "a": "new"} for n in range(8)))
    update(table, {"id": "w", "ts": 7, "b": 70}, {"id": "gone", "part": "elsewhere", "ts": 6, "b": 1})
    whole = {"a": "all", "b": 1, "c": [1]}
    update(table, {"id": "x", "ts": 6, **whole}, *({"id": f"gone-{n}", "ts": 6, **whole} for n in range(8)))
    assert bool(partial_blocks(table)) is (table_type == "mor")
    assert seen(table) == {
        "w": (7, "new", 70, [0]),
        "x": (6, "all", 1, [1]),
        "y": (5, "a-y", 2, [2]),
        "z": (5, "a-z", 3, [3]),
    }
    snapshot = load_snapshot(table.context)
    assert set(snapshot.listing.partitions()) == {"p"}


@pytest.mark.parametrize(
    ("index", "table_type"),
    [
        ("GLOBAL_SIMPLE", "mor"),
        ("GLOBAL_BLOOM", "mor"),
        ("RECORD_INDEX", "mor"),
        ("GLOBAL_BLOOM", "cow"),
        pytest.param("GLOBAL_SIMPLE", "cow", marks=pytest.mark.wide),
        pytest.param("RECORD_INDEX", "cow", marks=pytest.mark.wide),
    ],
)
def test_by_global_index(table_type: str, index: str) -> None:
    kind: dict[str, Any] = {"hoodie.index.type": index, "hoodie.metadata.record.index.enable": index == "RECORD_INDEX"}
    table = made(table_type, **kind)
    update(table, {"id": "w", "ts": 6, "a": "new"}, {"id": "gone", "ts": 6, "a": "new"})
    names = ("hoodie.simple.index", "hoodie.bloom.index", "hoodie.record.index")
    moving = {f"{name}.update.partition.path": True for name in names}
    with pytest.raises(Unsupported, match="requires a complete row"):
        update(table, {"id": "x", "part": "other", "ts": 6, "a": "new"}, **moving)
    update(table, {"id": "x", "part": "other", "ts": 6, "a": "new"}, **dict.fromkeys(moving, False))
    assert bool(partial_blocks(table)) is (table_type == "mor")
    assert seen(table) == {
        "w": (6, "new", 0, [0]),
        "x": (6, "new", 1, [1]),
        "y": (5, "a-y", 2, [2]),
        "z": (5, "a-z", 3, [3]),
    }


class WholeOnly(Sums):
    strategy_id = "6f6c2b1e-94e4-4b0a-8d52-0f6d6a5d7c12"
    partial_merge = None  # type: ignore[assignment]


@pytest.mark.parametrize(("table_type", "compact"), [("mor", False), ("mor", True), ("cow", False)])
def test_a_merger_merges_what_lacks_columns_by_its_partial_merge(table_type: str, compact: bool) -> None:
    """In a batch, between partial updates in the log, with whole rows in the log, and with the row of the base file."""
    hp.register_merger(Sums())
    custom = {"hoodie.write.record.merge.strategy.id": Sums.strategy_id, "hoodie.write.record.merge.mode": "CUSTOM"}
    table = made(table_type, **custom)
    update(table, {"id": "w", "ts": 6, "b": 10}, {"id": "w", "ts": 6, "b": 20}, {"id": "gone", "ts": 6, "b": 1})
    update(table, {"id": "w", "ts": 7, "a": "short"}, {"id": "x", "ts": 7, "a": "s"})
    row = {"id": "x", "part": "p", "ts": 8, "a": "whole", "b": 40, "c": [8]}
    table.upsert(pa.Table.from_pylist([row], load_snapshot(table.context).schema.arrow))  # type: ignore[union-attr]
    update(table, {"id": "x", "ts": 9, "b": 5}, {"id": "y", "ts": 9, "b": 99})
    table.delete(pa.table({"id": ["z"], "part": ["p"]}))
    if compact:
        assert partial_blocks(table)
        table.compact()
        assert not partial_blocks(table)
    assert seen(table) == {"w": (7, "short", 30, [0]), "x": (9, "whole", 46, [8])}


def test_a_merger_from_functions_of_single_records() -> None:
    def partial(older: dict[str, Any], newer: dict[str, Any]) -> dict[str, Any] | None:
        return None if newer.get("b") == 0 else {"a": f"{older.get('a')}+{newer.get('a')}"}

    merger = hp.record_by_record("6f6c2b1e-94e4-4b0a-8d52-0f6d6a5d7c13", lambda older, newer: newer, partial)
    hp.register_merger(merger)
    table = made(**{"hoodie.write.record.merge.strategy.id": merger.strategy_id, "hoodie.write.record.merge.mode": "CUSTOM"})
    update(table, {"id": "w", "ts": 6, "b": 60}, {"id": "x", "ts": 6, "b": 0})
    update(table, {"id": "w", "ts": 7, "a": "n"})
    assert seen(table) == {
        "w": (7, "a-w+None+n", 60, [0]),
        "y": (5, "a-y", 2, [2]),
        "z": (5, "a-z", 3, [3]),
    }


def test_soft_deletes_among_the_columns() -> None:
    rows = [{"id": key, "part": "p", "ts": 5, "a": key, "_hoodie_is_deleted": False} for key in "wx"]
    for kind in ("mor", "cow"):
        table = Table.create(
            f"memory://partial-{next(_names)}",
            name="t",
            record_key="id",
            partition_by="part",
            ordering="ts",
            table_type=kind,
            options=SMALL,
        )
        table.insert(pa.Table.from_pylist(rows))
        update(table, {"id": "w", "ts": 6, "_hoodie_is_deleted": True}, {"id": "x", "ts": 6, "_hoodie_is_deleted": False})
        found = table.scan(["id", "ts", "a"]).to_arrow().to_pylist()
        assert found == [{"id": "x", "ts": 6, "a": "x"}]


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"ts": 6, "a": "n"}, InvalidRequest),
        ({"id": "w", "a": "n"}, InvalidRequest),
        ({"id": "w", "ts": 6, "brandnew": 1}, InvalidRequest),
        ({"id": "w", "ts": 6, "b": "text"}, InvalidRequest),
    ],
)
def test_rows_that_do_not_fit_are_refused(row: dict[str, Any], error: type[Exception]) -> None:
    table = made()
    before = seen(table)
    with pytest.raises(error):
        update(table, row)
    assert seen(table) == before


def test_unsupported_partial_update_is_rejected() -> None:
    payload = "org.apache.hudi.common.model.OverwriteNonDefaultsWithLatestAvroPayload"
    for mode in ("EVENT_TIME_ORDERING", ""):
        with pytest.raises(Unsupported, match="virtual key tables"):
            update(made(mode=mode, **{"hoodie.populate.meta.fields": False}), {"id": "w", "ts": 6, "a": "n"})
    custom = made(mode="CUSTOM", **{"hoodie.datasource.write.payload.class": payload})
    with pytest.raises(Unsupported, match="MergeIntoFieldResolutionException"):
        update(custom, {"id": "w", "ts": 6, "a": "n"})
    hp.register_merger(WholeOnly())
    with pytest.raises(Unsupported, match="no method partial_merge"):
        update(
            made(**{"hoodie.write.record.merge.strategy.id": WholeOnly.strategy_id, "hoodie.write.record.merge.mode": "CUSTOM"}),
            {"id": "w", "ts": 6, "a": "n"},
        )
    empty = Table.create(f"memory://partial-{next(_names)}", name="t", record_key="id", partition_by="part", ordering="ts")
    with pytest.raises(TableState, match="nothing to update"):
        update(empty, {"id": "w", "ts": 6, "a": "n"})


@pytest.mark.sample(4)
@pytest.mark.parametrize("after", ["", "compact", "log_compact"])
@pytest.mark.parametrize("late", ["whole", "partial"])
def test_a_late_row_in_the_logs_gives_a_partial_update_nothing(late: str, after: str) -> None:
    """It lost to the row of the base file, and readers merge logs before they look at that: so the update is written whole."""
    options: dict[str, Any] = {"hoodie.log.compaction.blocks.threshold": 2}
    table = made(**options)
    if late == "whole":
        table.upsert(pa.Table.from_pylist([{"id": "w", "part": "p", "ts": 3, "a": "late", "b": 33, "c": [33]}]))
    else:
        update(table, {"id": "w", "ts": 3, "b": 33})
    assert seen(table)["w"] == (5, "a-w", 0, [0])
    update(table, {"id": "w", "ts": 5, "a": "new"}, {"id": "x", "ts": 6, "a": "new"})
    if after:
        getattr(table, after)()
    assert seen(table) == {"w": (5, "new", 0, [0]), "x": (6, "new", 1, [1]), "y": (5, "a-y", 2, [2]), "z": (5, "a-z", 3, [3])}
    update(table, {"id": "w", "ts": 7, "b": 70})
    assert seen(table)["w"] == (7, "new", 70, [0])


def test_partial_updates_after_newer_rows_contain_only_given_columns() -> None:
    table = made()
    update(table, {"id": "w", "ts": 6, "a": "new"})
    table.upsert(pa.Table.from_pylist([{"id": "y", "part": "p", "ts": 3, "a": "late", "b": 33, "c": [33]}]))
    update(table, {"id": "w", "ts": 7, "b": 70})
    assert len(partial_blocks(table)) == 2
    assert seen(table)["w"] == (7, "new", 70, [0])


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_counts_of_late_rows_and_late_rows_after_a_delete(table_type: str, compacted: bool) -> None:
    location = f"memory://late-rows-{table_type}-{compacted}"
    table = Table.create(
        location, record_key="id", ordering="ts", table_type=table_type, options={"hoodie.compact.inline": False}
    )
    table.upsert([{"id": 1, "ts": 10, "v": "stored", "w": 1}])
    partial = table.upsert([{"id": 1, "ts": 11, "v": "partial"}, {"id": 2, "ts": 11, "v": "unknown"}], partial=True)
    assert (partial.rows_in, partial.rows_inserted, partial.rows_updated) == (2, 0, 1)
    late = table.upsert([{"id": 1, "ts": 5, "v": "late", "w": 2}])
    assert late.rows_updated == (0 if table_type == "cow" else 1)
    assert table.scan(["v"]).to_arrow()["v"].to_pylist() == ["partial"]
    if table_type == "mor":
        table.compact()
    table.delete([1])
    assert table.count() == 0
    if compacted and table_type == "mor":
        table.compact()
    table.upsert([{"id": 1, "ts": 5, "v": "after", "w": 3}])
    kept = [] if table_type == "mor" and not compacted else ["after"]
    assert table.scan(["v"]).to_arrow()["v"].to_pylist() == kept

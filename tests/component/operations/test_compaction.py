"""Compaction: inline after writes, planned and run separately, and its results."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.errors import InstantNotFound, InvalidRequest, ServiceFailed, TableState
from pyhudi.format.instants import Action, Instant, State
from pyhudi.operations.services.service_settings import ServiceSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.table.pending_plans import load_compaction_plan
from pyhudi.table.snapshot import load_snapshot, read_commit

SMALL = {
    "hoodie.index.bloom.num_entries": 100,
    "hoodie.bloom.index.filter.type": "SIMPLE",
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.compact.inline.max.delta.commits": 3,
}
ASIDE = {"hoodie.compact.inline": False}
_names = itertools.count()


def rows(parts: str, value: int) -> pa.Table:
    return pa.table({"id": [f"k-{part}" for part in parts], "part": list(parts), "value": [value] * len(parts)})


def create(table_type: str = "mor", /, **options: object) -> Table:
    return Table.create(
        f"memory://compactions-{next(_names)}",
        record_key="id",
        partition_by="part",
        table_type=table_type,
        options={**SMALL, **options},
        environment=ReplayEnvironment(1),
    )


def seen(table: Table) -> dict[str, int]:
    found = table.scan(["id", "value"]).to_arrow()
    return dict(zip(found["id"].to_pylist(), found["value"].to_pylist(), strict=True))


def pending(table: Table) -> list[str]:
    return [i.request_time for i in table.timeline().pending(Action.COMPACTION)]


def compactions(table: Table) -> list[str]:
    return [i.request_time for i in table.timeline().completed(Action.COMMIT)]


def test_write_compacts_inline_unless_options_disable_it() -> None:
    table = create()
    assert table.insert(rows("ab", 0)).services["compact"] == "not due: 1 of 3 delta commits since the last compaction"
    table.upsert(rows("a", 1))
    said = table.upsert(rows("a", 2)).services["compact"]
    (instant,) = compactions(table)
    assert said == f"run: {instant}, 1 file groups"
    assert seen(table) == {"k-a": 2, "k-b": 0}
    metadata = read_commit(table.context.timeline, table.timeline().find(instant))
    assert (metadata.operation_type, metadata.compacted) == ("COMPACT", True)
    assert [stat.partition_path for stat in metadata.write_stats] == ["a"]
    assert load_compaction_plan(table.context.timeline, Instant(instant, Action.COMPACTION, State.REQUESTED)).version == 2
    assert "compact" not in create("cow").insert(rows("a", 0)).services


@pytest.mark.parametrize(
    ("options", "inline", "scheduled"),
    [
        ({}, True, False),
        ({"hoodie.compact.inline": "true"}, True, False),
        ({"hoodie.compact.inline": "false"}, False, False),
        ({"hoodie.datasource.compaction.async.enable": "true"}, False, True),
        ({"hoodie.datasource.compaction.async.enable": "false"}, False, False),
        ({"hoodie.datasource.compaction.async.enable": "false", "hoodie.compact.inline": "true"}, True, False),
        ({"hoodie.compact.schedule.inline": "true"}, False, True),
        ({"hoodie.table.services.enabled": "false"}, False, False),
    ],
)
def test_options_select_inline_or_scheduled_compaction(options: dict[str, str], inline: bool, scheduled: bool) -> None:
    chosen = ServiceSettings.of(parse_options(options))
    assert (chosen.compact_inline, chosen.compact_schedule_inline) == (inline, scheduled)


def test_disabled_services_report_off() -> None:
    services = create(**{"hoodie.table.services.enabled": False}).insert(rows("a", 0)).services
    assert {text.split(":")[0] for text in services.values()} == {"off"}


def test_plans_made_inline_wait_for_another_process() -> None:
    table = create(**{"hoodie.compact.schedule.inline": True})
    table.insert(rows("ab", 0))
    table.upsert(rows("a", 1))
    said = table.upsert(rows("b", 2)).services["compact"]
    (planned,) = pending(table)
    assert said == f"planned: {planned}"
    assert table.upsert(rows("ab", 3)).services["compact"] == f"not due: compaction {planned} is already planned"
    result = table.compact(planned)
    assert (result.instant, result.planned, pending(table)) == (planned, None, [])
    assert seen(table) == {"k-a": 3, "k-b": 3}


def test_inline_compaction_executes_the_pending_plan_first() -> None:
    table = create()
    table.insert(rows("ab", 0), options=ASIDE)
    table.upsert(rows("a", 1), options=ASIDE)
    planned = table.schedule_compaction().planned
    assert planned is not None
    assert table.upsert(rows("b", 2)).services["compact"] == f"run: {planned}, 1 file groups"
    assert compactions(table) == [planned]


def test_a_failing_compaction_is_raised_after_the_commit_or_noted() -> None:
    table = create()
    table.insert(rows("a", 0), options=ASIDE)
    table.upsert(rows("a", 1), options=ASIDE)
    planned = table.schedule_compaction().planned
    assert planned is not None
    (log,) = load_snapshot(table.context).slices()["a"][0].logs
    content = table.context.storage.read(log.path)
    assert content is not None
    table.context.storage.delete([log.path])
    with pytest.raises(ServiceFailed, match="is committed"):
        table.insert(rows("b", 2))
    quiet = table.insert(rows("c", 2), options={"hoodie.fail.writes.on.inline.table.service.exception": False})
    assert quiet.services["compact"].startswith("failed: ")
    table.context.storage.put(log.path, content)
    table.compact()
    assert seen(table) == {"k-a": 1, "k-b": 2, "k-c": 2}


def test_log_compaction_inline() -> None:
    table = create(**{"hoodie.log.compaction.inline": True, "hoodie.log.compaction.blocks.threshold": 3, **ASIDE})
    table.insert(rows("ab", 0))
    for value in range(1, 3):
        assert table.upsert(rows("a", value)).services["log_compact"].startswith("not due")
    said = table.upsert(rows("a", 3)).services["log_compact"]
    assert said.startswith("run: ")
    deltas = table.timeline().completed(Action.DELTACOMMIT)
    assert read_commit(table.context.timeline, deltas[-1]).operation_type == "LOG_COMPACT"
    assert seen(table) == {"k-a": 3, "k-b": 0}
    assert table.upsert(rows("a", 4)).services["log_compact"].startswith("not due")
    assert table.upsert(rows("a", 5)).services["log_compact"].startswith("run: ")
    assert seen(table) == {"k-a": 5, "k-b": 0}


def test_partitions_over_the_limit_are_compacted_by_the_next_plan() -> None:
    table = create(**ASIDE)
    table.insert(rows("abcd", 0))
    table.upsert(rows("abc", 1))
    table.upsert(rows("b", 2))
    narrow = {"hoodie.compaction.strategy": "LogFileNumBasedCompactionStrategy,PartitionRegexBasedCompactionStrategy"}
    first = table.compact(options={**narrow, "hoodie.compaction.partition.path.regex": "[ab]", "hoodie.compaction.target.io": 1})
    assert first.instant is not None
    plan = load_compaction_plan(table.context.timeline, Instant(first.instant, Action.COMPACTION, State.REQUESTED))
    assert [op.partition_path for op in plan.operations or ()] == ["b", "a"]
    # The partitions that the pattern excluded, with or without files.
    assert plan.missing_schedule_partitions == ("c", "d")
    second = table.compact()
    assert second.instant is not None
    plan = load_compaction_plan(table.context.timeline, Instant(second.instant, Action.COMPACTION, State.REQUESTED))
    assert [op.partition_path for op in plan.operations or ()] == ["c"]
    assert plan.missing_schedule_partitions == ()
    assert table.compact().reason == "no file slice with log files to compact"
    assert seen(table) == {"k-a": 1, "k-b": 2, "k-c": 1, "k-d": 0}


def test_partition_with_a_pending_file_group_is_left_to_the_next_plan() -> None:
    table = create(**ASIDE)
    table.insert(rows("ab", 0))
    table.upsert(rows("a", 1))
    first = table.schedule_compaction().planned
    table.upsert(rows("ab", 2))
    second = table.schedule_compaction().planned
    assert first is not None
    assert second is not None
    plan = load_compaction_plan(table.context.timeline, Instant(second, Action.COMPACTION, State.REQUESTED))
    assert [op.partition_path for op in plan.operations or ()] == ["b"]
    assert plan.missing_schedule_partitions == ("a",)
    table.compact(second)
    table.compact(first)
    assert seen(table) == {"k-a": 2, "k-b": 2}
    assert table.compact().runs[0].file_groups == 1
    assert seen(table) == {"k-a": 2, "k-b": 2}
    assert table.read_optimized(["value"]).to_arrow()["value"].to_pylist() == [2, 2]


def test_compaction_plan_stores_extra_metadata() -> None:
    table = create(**ASIDE)
    table.insert(rows("a", 0))
    table.upsert(rows("a", 1))
    planned = table.schedule_compaction(commit_metadata={"why": "nightly"}).planned
    assert planned is not None
    plan = load_compaction_plan(table.context.timeline, Instant(planned, Action.COMPACTION, State.REQUESTED))
    assert plan.extra_metadata == {"why": "nightly"}
    table.compact(planned)
    assert seen(table) == {"k-a": 1}


def test_scheduling_if_due_reports_the_reason() -> None:
    table = create(**ASIDE)
    table.insert(rows("a", 0))
    table.upsert(rows("a", 1))
    result = table.schedule_compaction(if_due=True)
    assert (result.planned, result.reason) == (None, "2 of 3 delta commits since the last compaction")
    assert str(result) == "compact (nothing to do)\n  reason        2 of 3 delta commits since the last compaction"
    planned = table.schedule_compaction()
    assert str(planned) == f"compact {planned.planned} is planned"
    text = str(table.compact(planned.planned))
    assert text.startswith(f"compact {planned.planned}\n  file groups   1 with 1 log files")
    assert planned.to_dict()["operation"] == "compact"


def test_invalid_compaction_is_rejected() -> None:
    with pytest.raises(TableState, match="copy-on-write"):
        create("cow").compact()
    with pytest.raises(TableState, match="copy-on-write"):
        create("cow").log_compact()
    table = create()
    with pytest.raises(InstantNotFound):
        table.compact("20260101000000000")
    with pytest.raises(InvalidRequest, match="not a strategy"):
        table.compact(options={"hoodie.compaction.strategy": "Nope"})
    assert table.compact().reason == "no file slice with log files to compact"


def test_a_read_between_plan_and_completion_sees_every_row_once() -> None:
    table = create(**ASIDE)
    table.insert(rows("ab", 0))
    table.upsert(rows("a", 1))
    planned = table.schedule_compaction().planned
    table.upsert(rows("ab", 2))
    table.delete(rows("b", 0).select(["id", "part"]))
    before = seen(table)
    assert before == {"k-a": 2}
    as_of = table.scan(["value"], as_of=planned).to_arrow()["value"].to_pylist()
    table.compact(planned)
    assert seen(table) == before
    # Time travel to the plan sees what was written before it, from the compacted file now.
    assert sorted(as_of) == sorted(table.scan(["value"], as_of=planned).to_arrow()["value"].to_pylist()) == [0, 1]


def test_rows_of_a_compaction_do_not_count_as_changed() -> None:
    table = create(**ASIDE)
    table.insert(rows("ab", 0))
    done = table.upsert(rows("a", 1))
    assert done.completion_time is not None
    compacted = table.compact()
    assert compacted.completion_time is not None
    after = table.incremental(compacted.completion_time, columns=["id", "value"]).to_arrow()
    assert after.num_rows == 0
    whole = table.incremental(done.completion_time, columns=["id", "value"]).to_arrow().to_pylist()
    assert whole == [{"id": "k-a", "value": 1}]


def test_a_table_without_meta_columns() -> None:
    table = create(**{"hoodie.populate.meta.fields": False, "hoodie.log.compaction.blocks.threshold": 2, **ASIDE})
    table.insert(rows("abc", 0))
    table.upsert(rows("ab", 1))
    table.upsert(rows("a", 2))
    table.delete(rows("b", 0).select(["id", "part"]))
    assert table.log_compact().runs[0].file_groups == 2
    assert seen(table) == {"k-a": 2, "k-c": 0}
    assert table.compact().runs[0].file_groups == 2
    assert seen(table) == {"k-a": 2, "k-c": 0}
    stored = table.scan("*").to_arrow()
    for name in ("_hoodie_record_key", "_hoodie_commit_time", "_hoodie_file_name", "_hoodie_partition_path"):
        assert stored[name].null_count == stored.num_rows

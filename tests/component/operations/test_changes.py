"""Change data: from change logs and from file comparison, ranges, and errors for removed files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyhudi import Table
from pyhudi.errors import CorruptData, InvalidRequest, TableState, Unsupported
from pyhudi.planning.change_data import ChangeKind, ChangePlan
from pyhudi.table.snapshot import read_commit
from tests.support.golden_tables import open_golden

CDC, MODE, FORMAT = (
    "hoodie.table.cdc.enabled",
    "hoodie.table.cdc.supplemental.logging.mode",
    "hoodie.datasource.query.incremental.format",
)
MODES = ("OP_KEY_ONLY", "DATA_BEFORE", "DATA_BEFORE_AFTER")
QUIET = {"hoodie.clean.automatic": False, "hoodie.compact.inline": False}


def rows(keys: str, ts: int, day: str = "x") -> pa.Table:
    made = [{"id": key, "ts": ts, "tags": [key, None], "inner": {"n": ts}, "day": day} for key in keys]
    change_types = [
        ("id", pa.string()),
        ("ts", pa.int32()),
        ("tags", pa.list_(pa.string())),
        ("inner", pa.struct([("n", pa.int64())])),
    ]
    return pa.Table.from_pylist(made, pa.schema([*change_types, ("day", pa.string())]))


def make(path: Path, kind: str = "cow", mode: str = MODES[2], options: Mapping[str, object] | None = None) -> Table:
    given = {CDC: True, MODE: mode, **QUIET, **(options or {})}
    return Table.create(path, name="t", record_key="id", partition_by="day", ordering="ts", table_type=kind, options=given)


def changes_between(table: Table, start: str | None = "earliest", end: str | None = None) -> list[tuple[str, str, str]]:
    """Operation, and the numbers of the record before and after, with its key."""
    found = []
    for row in table.changes(str(start), end).to_arrow().to_pylist():
        before, after = ({} if text is None else json.loads(text) for text in (row["before"], row["after"]))
        text = f"{(before or after)['id']}:{before.get('ts', '-')}>{after.get('ts', '-')}"
        found.append((row["ts_ms"], row["op"], text))
    return sorted(found)


def short(table: Table, start: str | None = "earliest", end: str | None = None) -> list[str]:
    return [f"{op} {text}" for _, op, text in changes_between(table, start, end)]


def change_types(table: Table, start: str = "earliest") -> list[ChangeKind]:
    plan = table.changes(start).explain()
    assert isinstance(plan, ChangePlan)
    return [source.change_type for source in plan.sources]


def replayed(table: Table) -> dict[tuple[str, str], str]:
    """The records after all changes; each change has to fit the state before it.  By key and partition."""
    state: dict[tuple[str, str], str] = {}
    for row in table.changes().to_arrow().to_pylist():
        for text in (row["before"],) if row["before"] else ():
            image = json.loads(text)
            assert state.pop((image["id"], image["day"])) == text, row
        if row["after"]:
            image = json.loads(row["after"])
            assert (image["id"], image["day"]) not in state, row
            state[image["id"], image["day"]] = row["after"]
        assert (row["op"] == "i") == (row["before"] is None) and (row["op"] == "d") == (row["after"] is None)
    return state


def present(table: Table) -> dict[tuple[str, str], str]:
    found = table.scan().to_arrow().to_pylist()
    return {(row["id"], row["day"]): json.dumps(row) for row in found}


STEP = st.tuples(
    st.sampled_from(["upsert", "upsert", "delete", "insert", "insert_overwrite", "delete_partitions", "compact", "cluster"]),
    st.text("abcdef", min_size=1, max_size=4).map(lambda text: "".join(dict.fromkeys(text))),
    st.integers(0, 5),
    st.sampled_from("xy"),
)


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(["cow", "mor"]), st.sampled_from(MODES), st.lists(STEP, min_size=3, max_size=7))
def test_the_changes_lead_to_the_present_state(
    tmp_path_factory: pytest.TempPathFactory, kind: str, mode: str, steps: list[tuple[str, str, int, str]]
) -> None:
    table = make(tmp_path_factory.mktemp("t") / "t", kind, mode)
    table.upsert(rows("ab", 2))
    for operation, keys, ts, day in steps:
        if operation == "delete_partitions":
            table.delete_partitions(day)
        elif operation == "compact":
            if kind == "mor":
                table.compact()
        elif operation == "cluster":
            table.cluster(order_by="id")
        elif operation == "insert":
            # Keys that the table has would be there twice.
            there = {key for key, _ in present(table)}
            fresh = "".join(key for key in keys if key not in there)
            if fresh:
                table.insert(rows(fresh, ts, day))
        else:
            getattr(table, operation)(rows(keys, ts, day))
    assert replayed(table) == present(table)
    assert table.changes().count() == table.changes().to_arrow().num_rows


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_ranges(tmp_path: Path, kind: str) -> None:
    """By completion time both ends count; by Hudi's option request times, of which the start does not."""
    table = make(tmp_path / "t", kind)
    one, two, three = (table.upsert(rows(keys, ts)) for keys, ts in (("ab", 1), ("bc", 2), ("c", 3)))
    assert short(table, two.completion_time) == ["i c:->2", "u b:1>2", "u c:2>3"]
    assert short(table, one.completion_time, two.completion_time) == ["i a:->1", "i b:->1", "i c:->2", "u b:1>2"]
    assert short(table, str(int(str(three.completion_time)) + 1)) == []

    def by_request(begin: str, end: str | None = None) -> int:
        return table.incremental(begin, end, options={FORMAT: "cdc"}).count()

    assert (by_request("000"), by_request("earliest"), by_request(str(one.instant))) == (5, 5, 3)
    assert (by_request(str(one.instant), two.instant), by_request(str(three.instant))) == (2, 0)
    with pytest.raises(InvalidRequest, match="digits"):
        table.changes("yesterday")
    with pytest.raises(InvalidRequest, match="ends before"):
        table.changes("2", "1")


def test_columns_filters_and_types(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(rows("ab", 1))
    table.upsert(rows("b", 2))
    table.delete(rows("a", 0))
    assert table.changes(columns=["op"], filter="op != 'i'").to_arrow().to_pydict() == {"op": ["u", "d"]}
    assert table.changes(columns=[], filter="op = 'd'").count() == 1
    assert table.changes(filter="before like '%nothing%'").count() == 0
    with pytest.raises(InvalidRequest, match="no column 'id'"):
        table.changes(columns=["id"])
    typed = table.changes(typed=True, filter="op = 'u'").to_arrow()
    assert typed.schema == table.changes(typed=True).schema
    assert typed["before"].to_pylist() == rows("b", 1).to_pylist() and typed["after"].to_pylist() == rows("b", 2).to_pylist()
    assert next(batch.schema for batch in table.changes(typed=True).to_batches()) == typed.schema


def test_evolved_columns(tmp_path: Path) -> None:
    for mode in MODES:
        table = make(tmp_path / mode, mode=mode)
        table.upsert(rows("ab", 1).append_column("n", pa.array([1, 2], pa.int32())))
        table.upsert(rows("a", 2).append_column("n", pa.array([3], pa.int32())))
        wider = rows("ab", 3).append_column("n", pa.array([2**40, None], pa.int64()))
        table.upsert(wider.append_column("more", pa.array(["new", None])))
        assert replayed(table) == present(table)
        assert all('"more": ' in (row["after"] or "") for row in table.changes().to_arrow().to_pylist())


def test_records_that_change_their_partition(tmp_path: Path) -> None:
    for kind in ("cow", "mor"):
        table = make(tmp_path / kind, kind, options={"hoodie.index.type": "GLOBAL_SIMPLE"})
        given = {"hoodie.index.type": "GLOBAL_SIMPLE", **QUIET}
        table.upsert(rows("ab", 1), options=given)
        moved = table.upsert(rows("b", 2, "y"), options=given)
        assert short(table, moved.completion_time) == ["d b:1>-", "i b:->2"]


@pytest.mark.parametrize("mode", MODES)
def test_a_missing_change_log_is_made_up_for(tmp_path: Path, mode: str) -> None:
    """From the base files, as long as both are there."""
    table = make(tmp_path / "t", mode=mode, options={"hoodie.metadata.enable": False})
    off = {"hoodie.metadata.enable": False}
    table.upsert(rows("abc", 2), options=off)
    table.upsert(rows("abd", 1), options=off)
    table.upsert(rows("bd", 3), options=off)
    table.delete(rows("ac", 0), options=off)
    before = changes_between(table)
    logs = sorted((tmp_path / "t" / "x").glob("*.cdc"))
    assert len(logs) == 3 and change_types(table) == [ChangeKind.INSERTED, *[ChangeKind.LOGGED] * 3]
    for log in logs:
        log.unlink()
    assert change_types(table) == [ChangeKind.INSERTED, *[ChangeKind.REWRITTEN] * 3]
    assert changes_between(table) == before

    first = min((tmp_path / "t" / "x").glob("*.parquet"), key=lambda path: path.name.split("_")[2])
    first.unlink()
    with pytest.raises(TableState, match=r"are (?:not |un)available"):
        table.changes()
    assert len(changes_between(table, str(table.timeline().completed_writes()[2].completion_time))) == 4


def test_a_torn_change_log(tmp_path: Path) -> None:
    """Truncated or changed at any byte: the changes, or an error that names the file."""
    table = make(tmp_path / "t", options={"hoodie.metadata.enable": False})
    off = {"hoodie.metadata.enable": False}
    table.upsert(rows("ab", 1), options=off)
    table.upsert(rows("a", 2), options=off)
    (log,) = (tmp_path / "t" / "x").glob("*.cdc")
    whole = log.read_bytes()
    for cut in range(0, len(whole), 37):
        log.write_bytes(whole[:cut])
        with pytest.raises(CorruptData, match=r"\.cdc"):
            changes_between(table)
    for at in range(0, len(whole), 41):
        log.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        try:
            changes_between(table)
        except (CorruptData, Unsupported):
            continue


def test_change_query_of_a_cleaned_range_is_rejected(tmp_path: Path) -> None:
    """A range that begins before the oldest remaining instant is refused, regardless of mode and table type."""
    for kind, mode in (("cow", MODES[0]), ("cow", MODES[2]), ("mor", MODES[1])):
        table = make(tmp_path / f"{kind}{mode}", kind, mode)
        results = [table.upsert(rows("ab", ts)) for ts in range(6)]
        if kind == "mor":
            table.compact()
            results += [table.upsert(rows("ab", ts)) for ts in (6, 7)]
            table.compact()
        table.clean(dry_run=False, options={"hoodie.clean.commits.retained": 1})
        with pytest.raises(TableState, match=r"are (?:not |un)available"):
            table.changes()
        assert len(changes_between(table, results[-1].completion_time)) == 2


def test_change_logs_go_with_their_commits(tmp_path: Path) -> None:
    """Through rollback, clean, savepoint and restore: those of commits that are there, and no other."""

    def there() -> set[str]:
        return {str(path.relative_to(tmp_path / "t")) for path in (tmp_path / "t" / "x").glob("*.cdc")}

    def reported() -> set[str]:
        commits = [read_commit(table.context.timeline, instant) for instant in table.timeline().completed_writes()]
        return {path for metadata in commits for stat in metadata.write_stats for path in stat.cdc_stats or ()}

    table = make(tmp_path / "t")
    results = [table.upsert(rows("ab", ts)) for ts in range(5)]
    assert len(there()) == 4 and there() == reported()
    table.rollback(str(table.upsert(rows("az", 9)).instant))
    assert len(there()) == 4 and there() == reported()
    table.savepoint(results[1].instant)
    table.clean(dry_run=False, options={"hoodie.clean.commits.retained": 1})
    kept = {path.split("_")[1].split(".")[0] for path in there()}
    assert kept == {str(results[n].instant) for n in (1, 3, 4)}
    assert table.validate().ok
    table.restore(str(results[1].instant))
    assert len(there()) == 1 and there() == reported()
    assert len(changes_between(table, table.upsert(rows("ab", 9)).completion_time)) == 2


def test_archived_instants_count_while_their_files_are_there(tmp_path: Path) -> None:
    table = make(tmp_path / "t", options={"hoodie.metadata.enable": False})
    for ts in range(6):
        table.upsert(rows("ab", ts))
    table.clean(dry_run=False, options={"hoodie.clean.commits.retained": 4})
    start = str(table.timeline().completed_writes()[2].completion_time)
    before = changes_between(table, start)
    few = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1}
    assert table.archive(options=few).instants
    assert len(table.timeline().completed_writes()) < 6
    assert changes_between(table, start) == before
    assert str(table.timeline().completed_writes()[0].completion_time) > start


def test_tables_without_change_data(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", name="t", record_key="id", ordering="ts")
    with pytest.raises(TableState, match="records no change data"):
        table.changes()
    with pytest.raises(TableState, match="records no change data"):
        table.incremental("000", options={FORMAT: "cdc"})


def test_tables_without_meta_columns(tmp_path: Path) -> None:
    for kind, mode in (("cow", MODES[0]), ("cow", MODES[2]), ("mor", MODES[1])):
        table = make(tmp_path / f"{kind}{mode}", kind, mode, options={"hoodie.populate.meta.fields": False})
        table.upsert(rows("ab", 1))
        table.upsert(rows("b", 2))
        table.delete(rows("a", 0))
        assert replayed(table) == present(table)


def test_log_statistics_that_do_not_name_their_slice(tmp_path: Path) -> None:
    """Other writers may leave it out; then it is found from the files."""
    from pyhudi.operations.read.change_queries import plan_change_query
    from pyhudi.planning.change_data import plan_changes
    from pyhudi.planning.incremental_query import CompletionRange

    golden = open_golden("mor_cdc", tmp_path)
    table = Table(golden.path)
    query = plan_change_query(table.context, CompletionRange("000"))
    snapshot = query.snapshot
    commits = {}
    for instant in snapshot.timeline.completed_writes():
        metadata = read_commit(table.context.timeline, instant)
        for stats in metadata.partition_to_write_stats.values():
            for stat in stats:
                object.__setattr__(stat, "base_file", None)
                object.__setattr__(stat, "log_files", None)
        commits[instant] = metadata
    files = snapshot.listing.files(snapshot.listing.partitions())
    sizes = {info.path: info.size_bytes for infos in files.values() for info in infos}
    groups = snapshot.groups(files)
    assert plan_changes(commits, sizes, groups, snapshot.slicing, table.config.cdc_mode) == query.plan.sources

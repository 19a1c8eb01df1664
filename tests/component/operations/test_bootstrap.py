"""Tables bootstrapped over existing Parquet files: creation, reads, writes, services, refusals."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest

import pyhudi as hp
from pyhudi import Table
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import CorruptData, HudiError, InvalidRequest, TableExists, TableState, Unsupported
from pyhudi.features import procedures
from pyhudi.features.bootstrap.bootstrap_operation import BootstrapSettings, BootstrapTarget, run_bootstrap
from pyhudi.features.bootstrap.bootstrap_tasks import run_inspect_source, run_skeleton
from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.format.bootstrap_index import INDEX_FILE_NAME, SourceFile
from pyhudi.options.scope import TABLE_OPERATIONS
from pyhudi.options.supported import SUPPORTED, parse_options
from pyhudi.storage import open_storage
from pyhudi.storage.environment import SystemEnvironment
from pyhudi.storage.locks import InProcessLock
from pyhudi.tasks.bootstrap_join import JoinedColumns, source_rows
from tests.support.bootstrapped import INDEX

SELECTOR = "hoodie.bootstrap.mode.selector"
SMALL: dict[str, object] = {
    "hoodie.index.bloom.num_entries": 100,
    "hoodie.bloom.index.filter.type": "SIMPLE",
    "hoodie.index.bloom.fpp": 0.01,
    "pyhudi.threads": 1,
}
COUNT = 12
INDEXES = {"hoodie.metadata.record.index.enable": True, "hoodie.metadata.index.bloom.filter.enable": True}
REGEX = {SELECTOR: "org.apache.hudi.client.bootstrap.selector.BootstrapRegexModeSelector", f"{SELECTOR}.regex": "p=[01]"}


def row(number: int, ts: int = 1) -> dict[str, Any]:
    return {"id": f"k{number:02}", "ts": ts, "fare": number / 2, "p": number % 3}


T = TypeVar("T")
R = TypeVar("R")
FORMAT, VERSION = "hoodie.table.base.file.format", "hoodie.write.table.version"


def source_at(folder: Path, *, column: bool = False, form: str = "PARQUET") -> Path:
    """Three partitions of two files each, cut into other row groups than those of the table."""
    for p in range(3):
        own = [row(number) for number in range(COUNT) if number % 3 == p]
        rows = pa.Table.from_pylist(own).select(["id", "ts", "fare", *(["p"] if column else [])])
        (folder / f"p={p}").mkdir(parents=True)
        if form == "ORC":
            po.write_table(rows.slice(0, 3), str(folder / f"p={p}" / "a.orc"))
            po.write_table(rows.slice(3), str(folder / f"p={p}" / "b.snappy.orc"), compression="snappy")
        else:
            pq.write_table(rows.slice(0, 3), folder / f"p={p}" / "a.parquet", row_group_size=2)
            pq.write_table(rows.slice(3), folder / f"p={p}" / "b.snappy.parquet")
        (folder / f"p={p}" / "_SUCCESS").touch()
    return folder


def made(tmp_path: Path, kind: str = "cow", mode: str = "metadata_only", options: Mapping[str, object] | None = None) -> Table:
    """A table over a source, opened."""
    more = REGEX if mode == "regex" else {}
    hp.bootstrap(
        source_at(tmp_path / "source", form=str((options or {}).get(FORMAT, "PARQUET"))),
        tmp_path / "t",
        record_key="id",
        partition_by="p",
        ordering="ts",
        table_type=kind,
        mode=None if mode == "regex" else mode,
        options={**SMALL, **more, **(options or {})},
    )
    return Table(tmp_path / "t", options={**SMALL, "hoodie.compact.inline": False})


def found(table: Table, **asked: Any) -> dict[str, dict[str, Any]]:
    rows = table.scan(**asked).to_arrow().to_pylist()
    assert len({r["id"] for r in rows}) == len(rows)
    return {r["id"]: r for r in rows}


def upsert_of(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows)).cast(
        pa.schema([("id", pa.string()), ("ts", pa.int64()), ("fare", pa.float64()), ("p", pa.int32())])
    )


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {str(p.relative_to(folder)): (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file()}


KINDS = [(kind, mode) for kind in ("cow", "mor") for mode in ("metadata_only", "full_record", "regex")]
EARLY = [("cow", "metadata_only", "PARQUET", 8), ("mor", "regex", "PARQUET", 8), ("mor", "regex", "ORC", 9)]
EVERY = [(*kinds, form, version) for kinds in KINDS for form in ("PARQUET", "ORC") for version in (8, 9)]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("kind", "mode", "form", "version"),
    [*EARLY, *(pytest.param(*case, marks=pytest.mark.wide) for case in EVERY if case not in EARLY)],
)
def test_a_table_is_made_written_and_serviced(tmp_path: Path, kind: str, mode: str, form: str, version: int) -> None:
    """The rows are right after each step, and the source files stay as they are."""
    table = made(tmp_path, kind, mode, {FORMAT: form, VERSION: version})
    assert (int(table.config.version), table.config.base_file_format) == (version, form)
    source = contents(tmp_path / "source")
    expected = {row(number)["id"]: row(number) for number in range(COUNT)}
    assert found(table) == expected and table.scan().count() == COUNT
    assert table.schema().names == ["id", "ts", "fare", "p"] and table.schema().field("p").type == pa.int32()
    first = table.timeline().completed_writes()
    assert [i.request_time for i in first] == {
        "metadata_only": ["00000000000001"],
        "full_record": ["00000000000002"],
        "regex": ["00000000000001", "00000000000002"],
    }[mode]
    begun = {key: dict(r) for key, r in expected.items()}

    def check() -> None:
        assert found(table) == expected
        assert table.validate(keys=True).ok
        assert found(table, filter="fare > 4") == {key: r for key, r in expected.items() if r["fare"] > 4}
        assert found(table, filter="p = 1 AND id >= 'k04'") == {
            key: r for key, r in expected.items() if r["p"] == 1 and key >= "k04"
        }
        assert contents(tmp_path / "source") == source

    table.upsert(upsert_of({**row(0, 2), "fare": 100.0}, {**row(1, 0), "fare": -1.0}, {**row(50, 2), "p": 2}))
    expected["k00"] = {**row(0, 2), "fare": 100.0}
    expected["k50"] = {**row(50, 2), "p": 2}
    check()
    table.delete(upsert_of(row(3), row(4)).select(["id", "p"]))
    del expected["k03"], expected["k04"]
    check()
    table.update({"fare": 7.5}, where="id = 'k05'")
    expected["k05"]["fare"] = 7.5
    check()
    assert found(table, as_of=first[-1].request_time) == begun
    if kind == "mor":
        assert table.compact().instant
        check()
    else:
        table.rollback(table.upsert(upsert_of({**row(8, 9), "fare": 1000.0})).instant or "")
        check()
    table.savepoint()
    kept = dict(expected)
    table.upsert(upsert_of({**row(9, 9), "fare": 1000.0}))
    table.restore(table.timeline().completed_writes()[-2].request_time)
    assert found(table) == kept
    assert table.cluster().instant
    check()
    for number in range(3):
        table.upsert(upsert_of({**row(7, 10 + number), "fare": float(number)}))
    expected["k07"] = {**row(7, 12), "fare": 2.0}
    table.clean(dry_run=False, options={"hoodie.clean.commits.retained": 1})
    check()


def test_bootstrap_files_have_the_layout_of_hudi(tmp_path: Path) -> None:
    table = made(tmp_path)
    folder = tmp_path / "t"
    names = sorted(path.name for path in folder.rglob("*_00000000000001.parquet"))
    assert len(names) == 6 and all(len(name.split("_")[0]) == 36 for name in names)
    skeleton = next(folder.rglob("*_00000000000001.parquet"))
    footer = pq.read_metadata(skeleton).metadata or {}
    assert b'"name":"HoodieRecordKey"' in footer[b"parquet.avro.schema"] and b"org.apache.hudi.bloomfilter" in footer
    rows = pq.read_table(skeleton).to_pylist()
    assert all(r["_hoodie_commit_seqno"].startswith("00000000000001_") and r["_hoodie_file_name"] == skeleton.name for r in rows)
    timeline = folder / ".hoodie" / "timeline"
    assert (
        (timeline / "00000000000001.commit.requested").read_bytes() == (timeline / "00000000000001.inflight").read_bytes() == b""
    )
    (done,) = timeline.glob("00000000000001_*.commit")
    commit = CommitMetadata.decode(done.read_bytes())
    assert commit.operation_type == "BOOTSTRAP" and list(commit.extra_metadata) == ["schema"]
    assert {stat.prev_commit for stat in commit.write_stats} == {"null"}
    for kind in (".fileids", ".partitions"):
        assert [path.name for path in (folder / ".hoodie" / ".aux" / ".bootstrap" / kind).iterdir()] == [INDEX_FILE_NAME]
    assert table.config.bootstrap_base_path == str(tmp_path / "source")
    assert dict(table.config.properties)["hoodie.bootstrap.index.type"] == "HFILE"


@pytest.mark.parametrize("service", ["compact", "cluster"])
def test_changed_source_file_fails_every_reader(tmp_path: Path, service: str) -> None:
    """A read that needs its rows fails with its name, and no write lands; other reads succeed, and all do when it is restored."""
    table = made(tmp_path, "mor")
    table.upsert(upsert_of({**row(0, 2), "fare": 9.0}, {**row(1, 2), "fare": 9.0}))
    file = tmp_path / "source" / "p=0" / "a.parquet"
    held = file.stat()
    os.utime(file, ns=(held.st_atime_ns, held.st_mtime_ns + 5_000_000))
    before = table.timeline().completed_writes()
    run = getattr(table, service)
    for act in (lambda: table.scan().to_arrow(), lambda: table.update({"fare": 1.0}, where="p = 0"), run):
        with pytest.raises(CorruptData, match=r"has changed since.*p=0/a\.parquet"):
            act()
    assert table.timeline().completed_writes() == before
    assert found(table, filter="p = 1").keys() == {"k01", "k04", "k07", "k10"}
    os.utime(file, ns=(held.st_atime_ns, held.st_mtime_ns))
    run()
    assert len(found(table)) == COUNT and len(table.timeline().completed_writes()) == len(before) + 1


class Interrupted(LocalEngine):
    """Threads that call a function after they have executed a list of tasks.

    after: the function whose tasks count.
    """

    def __init__(self, after: Callable[..., object], happens: Callable[[], object]) -> None:
        super().__init__(1)
        self._after, self._happens = after, happens

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> list[R]:
        done = super().map(function, tasks)
        if getattr(function, "func", function) is self._after:
            self._happens()
        return done


@pytest.mark.parametrize("after", [run_inspect_source, run_skeleton])
@pytest.mark.parametrize("what", ["another time", "another length", "gone"])
def test_source_file_changed_during_bootstrap_fails_it(tmp_path: Path, after: Callable[..., object], what: str) -> None:
    """Between any two of its steps a reader of the table would be refused. Nothing remains of it, and the next call succeeds."""
    source = source_at(tmp_path / "source")
    file = source / "p=1" / "a.parquet"
    changes: dict[str, Callable[[], object]] = {
        "another time": lambda: os.utime(file, ns=(0, file.stat().st_mtime_ns + 5_000_000)),
        "another length": lambda: pq.write_table(pq.read_table(file).slice(1), file),
        "gone": file.unlink,
    }
    env = SystemEnvironment()
    options = parse_options(
        {
            **SMALL,
            "hoodie.table.name": "t",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "p",
        }
    )
    target = BootstrapTarget(open_storage(tmp_path / "t"), env, InProcessLock(str(tmp_path), env), options)
    engine = Interrupted(after, changes[what])
    with pytest.raises((CorruptData, TableState), match=r"p=1/a\.parquet"):
        run_bootstrap(target, open_storage(source), str(source), engine, BootstrapSettings.of(options))
    assert not Table.exists(tmp_path / "t") and not list((tmp_path / "t").rglob("*.parquet"))
    assert hp.bootstrap(source, tmp_path / "t", record_key="id", partition_by="p", options=SMALL).rows < COUNT + (what[0] == "a")


def test_a_source_file_that_changes_while_it_is_read(tmp_path: Path) -> None:
    """The rows so far may be of another file than the next ones: the reader gets an error."""
    source = source_at(tmp_path / "source") / "p=0" / "a.parquet"
    held = source.stat()
    table = Table.create(tmp_path / "t", record_key="id", partition_by="p").context
    file = SourceFile(f"file:{source}", held.st_size, held.st_mtime_ns // 1_000_000)
    columns = JoinedColumns(table.storage.spec(), table.config.keys, "p=0")
    rows = source_rows(file, pa.schema([("id", pa.string())]), columns)
    assert next(rows).num_rows == 2
    os.utime(source, ns=(held.st_atime_ns, held.st_mtime_ns + 5_000_000))
    with pytest.raises(CorruptData, match="has changed since"):
        list(rows)


def test_orc_files_of_all_types(tmp_path: Path) -> None:
    """Times of ORC are instants, small numbers are whole numbers of 32 bits; both formats give the same table."""
    moments = [datetime.datetime(2024, 5, 6, 7, 8, 9, 123456), None]
    rows = pa.table(
        {
            "id": ["a", "b"],
            "at": pa.array(moments, pa.timestamp("ns")),
            "small": pa.array([1, None], pa.int16()),
            "day": pa.array([datetime.date(2024, 2, 29), None], pa.date32()),
            "sum": pa.array([None, 123], pa.decimal128(20, 2)),
            "place": pa.array(
                [{"lat": 1.5, "words": ["x", None]}, None], pa.struct({"lat": pa.float64(), "words": pa.list_(pa.string())})
            ),
            "named": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        }
    )
    tables = {}
    for form in ("ORC", "PARQUET"):
        source = tmp_path / form
        source.mkdir()
        if form == "ORC":
            po.write_table(rows, str(source / "a.orc"))
        else:
            pq.write_table(rows.set_column(1, "at", rows["at"].cast(pa.timestamp("us", "UTC"))), source / "a.parquet")
        hp.bootstrap(source, tmp_path / f"t-{form}", record_key="id", options={**SMALL, FORMAT: form})
        table = Table(tmp_path / f"t-{form}")
        table.upsert(table.scan(filter="id = 'b'").to_arrow())
        tables[form] = table.scan().to_arrow().sort_by("id")
    assert tables["ORC"].schema == tables["PARQUET"].schema
    assert tables["ORC"].to_pylist() == tables["PARQUET"].to_pylist()


@pytest.mark.sample(2)
@pytest.mark.parametrize("mode", ["metadata_only", "full_record"])
@pytest.mark.parametrize("column", [True, False])
def test_files_without_partition_columns(tmp_path: Path, mode: str, column: bool) -> None:
    """Whether the source has the column or not, the files of the table lack it and its values are read from paths, as text."""
    source = source_at(tmp_path / "source", column=column)
    options = {**SMALL, "hoodie.datasource.write.drop.partition.columns": True, "hoodie.metadata.record.index.enable": True}
    hp.bootstrap(source, tmp_path / "t", record_key="id", partition_by="p", ordering="ts", mode=mode, options=options)
    table = Table(tmp_path / "t")
    expected = {row(number)["id"]: {**row(number), "p": str(number % 3)} for number in range(COUNT)}
    assert found(table) == expected and found(table, filter="p = '1'").keys() == {"k01", "k04", "k07", "k10"}
    table.upsert(upsert_of({**row(0, 2), "fare": 9.0}, row(50, 2)))
    table.delete(where="p = '1' AND id = 'k04'")
    expected |= {"k00": {**expected["k00"], "ts": 2, "fare": 9.0}, "k50": {**row(50, 2), "p": "2"}}
    del expected["k04"]
    assert found(table) == expected
    table.cluster()
    assert found(table) == expected and table.validate(keys=True).ok
    stored = {name for file in (tmp_path / "t").glob("p=*/*.parquet") for name in pq.read_schema(file).names}
    assert {"fare", "_hoodie_record_key"} <= stored and "p" not in stored


def test_columns_come_after_a_bootstrap(tmp_path: Path) -> None:
    """New and wider columns over rows outside of the table; then everything is rewritten, and restored."""
    table = made(tmp_path, "mor", options={"hoodie.metadata.record.index.enable": True})
    wider = upsert_of({**row(1, 2), "fare": 9.0}).append_column("more", pa.array(["new"]))
    first = table.upsert(wider)
    expected = {row(number)["id"]: {**row(number), "more": None} for number in range(COUNT)}
    expected["k01"] = {**row(1, 2), "fare": 9.0, "more": "new"}
    assert found(table) == expected
    assert found(table, filter="more = 'new'").keys() == {"k01"} and len(found(table, filter="more is null")) == COUNT - 1
    table.savepoint(str(first.instant))
    table.cluster()
    assert found(table) == expected
    table.upsert(wider.set_column(1, "ts", pa.array([3])), options={"hoodie.index.type": "RECORD_INDEX"})
    table.compact(options={"hoodie.compact.inline.max.delta.commits": "1"})
    assert found(table) == expected | {"k01": {**expected["k01"], "ts": 3}}
    table.restore(str(first.instant))
    assert found(table) == expected
    assert table.lookup(["k01", "k02"]).to_arrow().num_rows == 2 and table.validate(keys=True).ok


def test_incremental_queries_and_change_data(tmp_path: Path) -> None:
    table = made(tmp_path, options={"hoodie.table.cdc.enabled": True})
    begun = table.timeline().completed_writes()[-1].completion_time or ""
    done = table.upsert(upsert_of({**row(0, 2), "fare": 9.0}, {**row(50, 2), "p": 1}))
    changes = table.changes(typed=True).to_arrow().to_pylist()
    assert sorted(change["op"] for change in changes) == ["i"] * (COUNT + 1) + ["u"]
    (update,) = (change for change in changes if change["op"] == "u")
    assert update["before"]["fare"] == 0.0 and update["after"]["fare"] == 9.0 and update["before"]["p"] == 0
    assert sorted(table.incremental(done.completion_time or "").to_arrow()["id"].to_pylist()) == ["k00", "k50"]
    assert table.incremental(begun, begun).to_arrow().num_rows == COUNT


def test_indexes_contain_the_rows_of_source_files(tmp_path: Path) -> None:
    """Each kind is built from the joined rows, answers, and agrees with them."""
    table = made(tmp_path, options=INDEXES)
    table.index.create("secondary_index", "ts")
    table.index.create("column_stats", "ts", name="year", function="from_unixtime", function_options={"format": "yyyy"})
    stats = [s for s in table.inspect.column_stats().to_pylist() if s["column"] == "fare"]
    assert {(s["min"], s["max"]) for s in stats} >= {("0", "3"), ("0.5", "3.5"), ("1", "4")}
    assert table.lookup(["k07"]).to_arrow()["fare"].to_pylist() == [3.5]
    table.upsert(upsert_of({**row(7, 2), "fare": 50.0}))
    assert found(table, filter="fare = 50").keys() == {"k07"} and not found(table, filter="fare = 3.5")
    assert table.validate(keys=True).ok


def test_int96_timestamps_are_instants(tmp_path: Path) -> None:
    """As Spark writes them by default; also those that nanoseconds do not reach."""
    moments = [datetime.datetime(1, 1, 1), datetime.datetime(2024, 5, 6, 7, 8, 9, 123456), None]
    rows = pa.table({"id": ["a", "b", "c"], "at": pa.array(moments, pa.timestamp("us"))})
    (tmp_path / "source").mkdir()
    pq.write_table(rows, tmp_path / "source" / "a.parquet", use_deprecated_int96_timestamps=True)
    hp.bootstrap(tmp_path / "source", tmp_path / "t", record_key="id", options=SMALL)
    table = Table(tmp_path / "t")
    assert table.schema().field("at").type == pa.timestamp("us", "UTC")
    assert table.scan(["at"]).to_arrow()["at"].cast(pa.timestamp("us")).to_pylist() == moments
    table.upsert(rows.slice(1, 1).set_column(1, "at", rows["at"].slice(1, 1).cast(pa.timestamp("us", "UTC"))))
    assert table.scan(["at"], filter="id <> 'b'").to_arrow()["at"].cast(pa.timestamp("us")).to_pylist() == [moments[0], None]


@pytest.mark.parametrize("mode", ["full_record", "metadata_only"])
def test_nanoseconds_are_truncated_only_on_request(tmp_path: Path, mode: str) -> None:
    (tmp_path / "source").mkdir()
    rows = pa.table({"id": ["a", "b"], "at": pa.array([5_000, 5_999], pa.timestamp("ns", "UTC"))})
    pq.write_table(rows, tmp_path / "source" / "a.parquet")
    with pytest.raises(InvalidRequest, match=r"a.parquet cannot be bootstrapped: column 'at': 5999 nanoseconds"):
        hp.bootstrap(tmp_path / "source", tmp_path / "t", record_key="id", mode=mode, options=SMALL)
    assert not Table.exists(tmp_path / "t")
    cut = {**SMALL, "pyhudi.timestamps.nanoseconds": "cut"}
    hp.bootstrap(tmp_path / "source", tmp_path / "t", record_key="id", mode=mode, options=cut)
    moments = [datetime.datetime(1970, 1, 1, microsecond=5, tzinfo=datetime.UTC)] * 2
    assert Table(tmp_path / "t").scan(["at"]).to_arrow()["at"].to_pylist() == moments


def test_the_rollback_of_a_bootstrap_removes_its_index(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.rollback("00000000000001")
    assert not list((tmp_path / "t" / INDEX).glob("*")) and not list((tmp_path / "t").rglob("*.parquet"))
    with pytest.raises(TableState, match="run the bootstrap again"):
        table.upsert(upsert_of(row(0)))
    # The same call as before starts again.
    again: dict[str, Any] = {"record_key": "id", "partition_by": "p", "ordering": "ts", "options": SMALL}
    assert hp.bootstrap(tmp_path / "source", tmp_path / "t", **again).rows == COUNT
    assert len(found(Table(tmp_path / "t"))) == COUNT
    with pytest.raises(TableExists):
        hp.bootstrap(tmp_path / "source", tmp_path / "t", **again)


def test_partition_names_may_be_decoded(tmp_path: Path) -> None:
    (tmp_path / "source" / "city=a b%25").mkdir(parents=True)
    pq.write_table(pa.table({"id": ["x"]}), tmp_path / "source" / "city=a b%25" / "f.parquet")
    translator = "hoodie.bootstrap.partitionpath.translator.class"
    decoded = "org.apache.hudi.client.bootstrap.translator.DecodedBootstrapPartitionPathTranslator"
    for target, options, partition, value in (
        ("plain", {}, "city=a b%25", "a b%25"),
        ("encoded", {"hoodie.datasource.write.partitionpath.urlencode": True}, "city=a b%25", "a b%"),
        ("decoded", {translator: decoded}, "city=a b%", "a b%"),
    ):
        hp.bootstrap(tmp_path / "source", tmp_path / target, record_key="id", partition_by="city", options={**SMALL, **options})
        table = Table(tmp_path / target)
        assert table.partitions() == (partition,) and table.scan().to_arrow()["city"].to_pylist() == [value]
        table.upsert(table.scan().to_arrow())
        assert table.partitions() == (partition,) and table.scan().count() == 1


def _null_key(source: Path) -> None:
    pq.write_table(pa.table({"id": pa.array([None], pa.string()), "ts": [1], "fare": [1.0]}), source / "p=2" / "z.parquet")


def _null_ordering(source: Path) -> None:
    pq.write_table(pa.table({"id": ["x"], "ts": pa.array([None], pa.int64()), "fare": [1.0]}), source / "p=2" / "z.parquet")


def _other_type(source: Path) -> None:
    pq.write_table(pa.table({"id": ["x"], "ts": ["one"], "fare": [1.0]}), source / "p=2" / "z.parquet")


def _no_zone(source: Path) -> None:
    at = pa.array([datetime.datetime(2024, 1, 1)], pa.timestamp("us"))
    pq.write_table(pa.table({"id": ["x"], "ts": [1], "fare": [1.0], "at": at}), source / "p=2" / "z.parquet")


def _of_hudi(source: Path) -> None:
    pq.write_table(pa.table({"id": ["x"], "_hoodie_record_key": ["x"]}), source / "p=2" / "z.parquet")


def _elsewhere(source: Path) -> None:
    pq.write_table(pa.table({"id": ["x"], "ts": [1], "fare": [1.0], "p": [7]}), source / "p=2" / "z.parquet")


Wrong = tuple[Callable[[Path], object], Mapping[str, Any], type[HudiError], str]
WRONG: dict[str, Wrong] = {
    "no key": (lambda s: None, {"record_key": None}, InvalidRequest, "needs a record key"),
    "a key that is null": (_null_key, {}, InvalidRequest, "z.parquet cannot be bootstrapped"),
    "an ordering value that is null": (
        _null_ordering,
        {"table_type": "mor"},
        InvalidRequest,
        "holds nulls in the ordering field",
    ),
    "a column of another type": (_other_type, {}, InvalidRequest, "z.parquet cannot be bootstrapped"),
    "a timestamp without a zone": (_no_zone, {}, InvalidRequest, "z.parquet cannot be bootstrapped"),
    "a file of Hudi's": (_of_hudi, {}, InvalidRequest, "one of Hudi's own"),
    "a table of Hudi's": (lambda s: (s / ".hoodie").mkdir(), {}, InvalidRequest, "is a Hudi table already"),
    "a value that the folder contradicts": (_elsewhere, {}, InvalidRequest, "would go to"),
    "no partition column": (lambda s: None, {"partition_by": None}, InvalidRequest, "not partitioned"),
    "too many partition columns": (lambda s: None, {"partition_by": "p,q"}, InvalidRequest, "2 fields"),
    "a column that is not there": (lambda s: None, {"ordering": "when"}, InvalidRequest, "'when' is not a column"),
    "a file of another format": (lambda s: (s / "p=0" / "x.orc").write_bytes(b"ORC"), {}, Unsupported, "x.orc is no PARQUET"),
    "a file of a format that is none": (lambda s: (s / "p=0" / "x.csv").touch(), {}, Unsupported, "PARQUET or ORC alone"),
    "HFiles": (lambda s: None, {"options": {FORMAT: "HFILE"}}, Unsupported, "HFILE is not supported: new tables have"),
    "a file that is damaged": (lambda s: (s / "p=0" / "x.parquet").write_bytes(b"PAR1"), {}, CorruptData, "x.parquet"),
    "paths of another style": (
        lambda s: None,
        {"options": {"hoodie.datasource.write.hive_style_partitioning": False}},
        InvalidRequest,
        "would be duplicated",
    ),
    "without meta columns": (lambda s: None, {"options": {"hoodie.populate.meta.fields": False}}, Unsupported, "meta columns"),
    "a selector of a user": (lambda s: None, {"options": {SELECTOR: "org.example.Mine"}}, Unsupported, "classes of users"),
    "a broken expression": (lambda s: None, {"options": {**REGEX, f"{SELECTOR}.regex": "("}}, InvalidRequest, "no regular expr"),
    "a mode that is none": (lambda s: None, {"mode": "half"}, InvalidRequest, "neither metadata_only nor full_record"),
    "another source by option": (
        lambda s: None,
        {"options": {"hoodie.bootstrap.base.path": "/elsewhere"}},
        InvalidRequest,
        "contradicts",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_failed_bootstrap_leaves_no_table(tmp_path: Path, what: str) -> None:
    spoil, given, error, words = WRONG[what]
    source = source_at(tmp_path / "source")
    spoil(source)
    arguments = {"record_key": "id", "partition_by": "p", "ordering": "ts", **given}
    arguments["options"] = {**SMALL, **given.get("options", {})}
    with pytest.raises(error, match=words):
        hp.bootstrap(source, tmp_path / "t", **arguments)
    assert not Table.exists(tmp_path / "t") and not list((tmp_path / "t").rglob("*.parquet"))


def test_source_and_table_folders_must_not_contain_each_other(tmp_path: Path) -> None:
    source = source_at(tmp_path / "source")
    for target in (source / "t", tmp_path, source):
        with pytest.raises(InvalidRequest, match="must not contain each other"):
            hp.bootstrap(source, target, record_key="id", partition_by="p", options=SMALL)
    with pytest.raises(InvalidRequest, match="no PARQUET files with rows"):
        hp.bootstrap(tmp_path / "none", tmp_path / "t", record_key="id", options=SMALL)


def test_options_act_or_are_refused(tmp_path: Path) -> None:
    operation = TABLE_OPERATIONS["pyhudi.bootstrap"]
    for option in SUPPORTED.values():
        if operation.accepts(option):
            continue
        words = option.kind if isinstance(option.kind, tuple) else ("true",) if option.kind is bool else ("7",)
        value = next((word for word in words if word != option.default), words[0])
        with pytest.raises(HudiError, match=r"has no effect on pyhudi\.bootstrap"):
            hp.bootstrap(tmp_path / "source", tmp_path / "t", record_key="id", options={option.key: value})
    # The table's own options may name the source again, as jobs do that hand the same ones to everything.
    table = made(tmp_path)
    again = {"hoodie.bootstrap.base.path": str(tmp_path / "source")}
    assert Table(table.uri, options=again).scan().count() == COUNT
    with pytest.raises(InvalidRequest, match="contradicts the table"):
        Table(table.uri, options={"hoodie.bootstrap.base.path": "/elsewhere"})
    with pytest.raises(Unsupported, match="is not supported"):
        Table.create(tmp_path / "u", record_key="id", options=again)


def test_procedures(tmp_path: Path) -> None:
    source_at(tmp_path / "source")
    path = str(tmp_path / "t")
    given: dict[str, Any] = {
        "table_type": "MERGE_ON_READ",
        "bootstrap_path": str(tmp_path / "source"),
        "rowKey_field": "id",
        "partition_path_field": "p",
        "options": "hoodie.datasource.write.precombine.field=ts",
    }
    assert procedures.call("run_bootstrap", path=path, base_path=path, **given).to_pylist() == [{"status": 0}]
    partitions = procedures.call("show_bootstrap_partitions", path=path)
    assert partitions["indexed_partitions"].to_pylist() == ["p=0", "p=1", "p=2"]
    every = procedures.call("show_bootstrap_mapping", path=path).to_pylist()
    assert len(every) == 6 and {one["source_base_path"] for one in every} == {str(tmp_path / "source")}
    own = procedures.call("show_bootstrap_mapping", path=path, partition_path="p=1", sort_by="source_file", desc=True).to_pylist()
    assert [one["source_file"].rsplit("/", 1)[1] for one in own] == ["b.snappy.parquet", "a.parquet"]
    one = procedures.call("show_bootstrap_mapping", path=path, partition_path="p=1", file_ids=own[0]["file_id"]).to_pylist()
    assert one == own[:1]
    other = str(tmp_path / "u")
    with pytest.raises(InvalidRequest, match="base_path"):
        procedures.call("run_bootstrap", path=other, base_path=path, **given)
    with pytest.raises(Unsupported, match="is no ORC file"):
        procedures.call("run_bootstrap", path=other, base_path=other, **given, base_file_format="ORC")
    with pytest.raises(InvalidRequest, match="bootstrap_overwrite"):
        procedures.call("run_bootstrap", path=other, base_path=other, **given, bootstrap_overwrite=True)
    Table.create(tmp_path / "other", record_key="id")
    with pytest.raises(TableState, match="is not a bootstrapped table"):
        procedures.call("show_bootstrap_partitions", path=str(tmp_path / "other"))

"""Tables that Apache Hudi bootstraps with METADATA_ONLY, updates and services are read by PyHudi with the same rows."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from pyhudi import Table, TableState, bootstrap
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.features import procedures
from pyhudi.features.bootstrap.bootstrap_operation import BootstrapSettings, BootstrapTarget, run_bootstrap
from pyhudi.options.supported import parse_options
from pyhudi.storage import Storage, open_storage
from pyhudi.storage.environment import SystemEnvironment
from pyhudi.storage.fault_injection import Fault, FaultOutcome, FaultPoint, FaultyStorage, SimulatedCrash
from pyhudi.storage.locks import InProcessLock
from tests.interop.oracle import RELEASE, ApacheHudi, HudiFailure
from tests.support.rows import assert_same_rows

OPERATION = "hoodie.datasource.write.operation"
CITIES = ("oslo", "são paulo", "rome")
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("fare", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("city", pa.string()),
    ]
)


def rows(numbers: Iterable[int], ts: int) -> pa.Table:
    made = [
        {
            "id": f"k{n:03d}",
            "ts": ts,
            "fare": n / 2 if n % 4 else None,
            "at": n * 1_000_000,
            "tags": ["x"] * (n % 3),
            "city": CITIES[n % 3],
        }
        for n in numbers
    ]
    return pa.Table.from_pylist(made, SCHEMA)


def source_at(folder: Path, held: pa.Table) -> Path:
    """Two files for each city, cut into other row groups than those of the table."""
    for city in CITIES:
        (folder / f"city={city}").mkdir(parents=True)
        own = held.filter(pc.equal(held["city"], city)).drop_columns(["city"])
        pq.write_table(own.slice(0, 13), folder / f"city={city}" / "part-0.parquet", row_group_size=5)
        pq.write_table(own.slice(13), folder / f"city={city}" / "part-1.parquet")
    return folder


def options_of(kind: str) -> dict[str, Any]:
    return {
        "hoodie.table.name": "bootstrapped",
        "hoodie.datasource.write.table.type": kind,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "city",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.hive_style_partitioning": True,
        "hoodie.metadata.index.column.stats.enable": False,
    }


BY_LISTING: dict[str, Any] = {"hoodie.metadata.enable": False}
FILTERS = ("true", "city = 'são paulo' AND fare > 3", "_hoodie_record_key = 'k007'", "ts = 2 OR fare IS NULL")


def check(hudi: ApacheHudi, path: Path) -> pa.Table:
    """What both read, through filters and in some columns too."""
    for text, real in zip(FILTERS, hudi.read_each(path, FILTERS), strict=True):
        assert_same_rows(real, Table(path).scan(["*"], filter=text).to_arrow())
    return Table(path).scan(["*"]).to_arrow()


@pytest.mark.parametrize(
    ("release", "kind"),
    [
        (RELEASE, "MERGE_ON_READ"),
        pytest.param(RELEASE, "COPY_ON_WRITE", marks=pytest.mark.wide),
        pytest.param("1.1.1", "MERGE_ON_READ", marks=pytest.mark.wide),
        pytest.param("1.1.1", "COPY_ON_WRITE", marks=pytest.mark.wide),
    ],
)
def test_hudi_reads_and_writes_a_table_bootstrapped_by_pyhudi(
    request: pytest.FixtureRequest, tmp_path: Path, release: str, kind: str
) -> None:
    """Both modes in one table, with the metadata table of either, and each writes what the other has made."""
    hudi: ApacheHudi = request.getfixturevalue("hudi" if release == RELEASE else "newer_hudi")
    path, held = tmp_path / "t", rows(range(60), 1)
    selector = "hoodie.bootstrap.mode.selector"
    regex = {selector: "BootstrapRegexModeSelector", f"{selector}.regex": "city=(oslo|são paulo)"}
    own = {key: value for key, value in options_of(kind).items() if "column.stats" not in key}
    own |= {} if release == RELEASE else {"hoodie.write.table.version": 9}
    made = bootstrap(source_at(tmp_path / "source", held), path, options={**own, **regex})
    assert (made.files_metadata_only, made.files_full_record, made.rows) == (4, 2, 60)
    assert_same_rows(check(hudi, path).select(held.column_names), held, key=["id"])
    assert_same_rows(hudi.read(path, columns=["fare", "city"]), held.select(["fare", "city"]))
    assert_same_rows(hudi.read(path, **BY_LISTING), hudi.read(path))
    for name in ("show_bootstrap_partitions", "show_bootstrap_mapping"):
        hudi.register(path, "ours")
        theirs = hudi.call(name, table="ours").to_pylist()
        ours = procedures.call(name, path=path).to_pylist()
        assert sorted(map(str, theirs)) == sorted(map(str, ours)) and ours
    hudi.write(rows((0, 1, 2, 61), 2), path, **{**own, OPERATION: "upsert"})
    check(hudi, path)
    Table(path).upsert(rows((3, 4, 62), 2), options={"hoodie.compact.inline": False})
    hudi.write(rows((6, 7), 3), path, **{**own, OPERATION: "delete"})
    Table(path).delete(rows((9,), 3).select(["id", "city"]))
    assert check(hudi, path).num_rows == 59
    if kind == "MERGE_ON_READ":
        assert Table(path).schedule_compaction().planned
        hudi.compact(path, "run", metadata=True)
    else:
        Table(path).cluster()
    assert check(hudi, path).num_rows == 59
    assert Table(path).validate(keys=True).ok


def test_hudi_writes_after_a_failed_bootstrap_of_pyhudi(hudi: ApacheHudi, tmp_path: Path) -> None:
    """It undoes the bootstrap by a restore to before all instants, which it cannot execute with a metadata table: its write fails
    then, and the restore remains.

    In both cases nothing of the dead bootstrap is read.
    """
    path, held, kind = tmp_path / "t", rows(range(60), 1), "COPY_ON_WRITE"
    source = source_at(tmp_path / "source", held)
    options = parse_options({key: value for key, value in options_of(kind).items() if "column.stats" not in key})
    settings = BootstrapSettings.of(options)

    def run(storage: Storage) -> None:
        env = SystemEnvironment()
        target = BootstrapTarget(storage, env, InProcessLock(f"{path}{id(storage)}", env), options)
        run_bootstrap(target, open_storage(source), str(source), LocalEngine(1), settings)

    counted = FaultyStorage(open_storage(tmp_path / "other"))
    run(counted)
    writes = [call for call in counted.calls if call.writes]
    published = next(n for n, call in enumerate(writes, 1) if call.path.endswith(".commit") and "00000000000001_" in call.path)
    with pytest.raises(SimulatedCrash):
        run(FaultyStorage(open_storage(path), Fault(published, FaultPoint.BEFORE, FaultOutcome.CRASH)))
    assert list(path.rglob("*_00000000000001.parquet"))
    with pytest.raises(HudiFailure, match="Can't restore to 00000000000000"):
        hudi.write(rows((0, 1), 2), path, **{**options_of(kind), OPERATION: "upsert"})
    with pytest.raises(TableState, match="delete that folder"):
        run(open_storage(path))
    shutil.rmtree(path)
    with pytest.raises(SimulatedCrash):
        run(FaultyStorage(open_storage(path), Fault(published, FaultPoint.BEFORE, FaultOutcome.CRASH)))
    hudi.write(rows((0, 1), 2), path, **{**options_of(kind), OPERATION: "upsert", "hoodie.metadata.enable": False})
    assert_same_rows(hudi.read(path, columns=["id", "ts"]), rows((0, 1), 2).select(["id", "ts"]))
    assert not list(path.rglob("*_00000000000001.parquet")) and not list(path.rglob("*.hfile"))
    assert Table(path).scan().count() == 2


@pytest.mark.parametrize(
    ("release", "kind"),
    [
        (RELEASE, "COPY_ON_WRITE"),
        pytest.param(RELEASE, "MERGE_ON_READ", marks=pytest.mark.wide),
        pytest.param("1.1.1", "COPY_ON_WRITE", marks=pytest.mark.wide),
        pytest.param("1.1.1", "MERGE_ON_READ", marks=pytest.mark.wide),
    ],
)
def test_table_bootstrapped_by_hudi_is_read(request: pytest.FixtureRequest, tmp_path: Path, release: str, kind: str) -> None:
    hudi: ApacheHudi = request.getfixturevalue("hudi" if release == RELEASE else "newer_hudi")
    path, held, options = tmp_path / "t", rows(range(60), 1), options_of(kind)
    options |= {} if release == RELEASE else {"hoodie.write.table.version": 9}
    source = source_at(tmp_path / "source", held)
    hudi.write(
        rows((), 1), path, mode="overwrite", **{**options, OPERATION: "bootstrap", "hoodie.bootstrap.base.path": str(source)}
    )
    check(hudi, path)
    first = Table(path).timeline().completed_writes()[0]
    hudi.write(rows((0, 1, 61), 2), path, **{**options, OPERATION: "upsert"})
    hudi.write(rows((3, 4), 2), path, **{**options, OPERATION: "delete"})
    check(hudi, path)
    now = Table(path)
    assert_same_rows(now.scan(as_of=first.request_time).to_arrow(), held, key=["id"])
    assert now.incremental("earliest", first.completion_time).count() > 0
    if kind == "MERGE_ON_READ":
        assert now.read_optimized().to_arrow().num_rows >= 60
        hudi.compact(path, "scheduleAndExecute")
        check(hudi, path)
    # And is written by us.
    Table(path).upsert(rows((5, 6, 63), 3), options={"hoodie.compact.inline": False})
    Table(path).delete(rows((8,), 3).select(["id", "city"]))
    if kind == "MERGE_ON_READ":
        check(hudi, path)
        Table(path).compact()
    assert check(hudi, path).num_rows == 59
    Table(path).cluster()
    assert check(hudi, path).num_rows == 59
    hudi.write(rows((10, 64), 4), path, **{**options, OPERATION: "upsert"})
    assert check(hudi, path).num_rows == 60
    assert Table(path).validate(keys=True).ok

"""Bootstraps that crash at every call: the next one restarts, and no writer accepts a partial bootstrap."""

from __future__ import annotations

import io
import itertools

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyhudi import Table
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import TableExists, TableNotFound, TableState
from pyhudi.features.bootstrap.bootstrap_operation import BootstrapSettings, BootstrapTarget, run_bootstrap
from pyhudi.options.supported import parse_options
from pyhudi.storage import Storage, open_storage
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.fault_injection import Fault, FaultyStorage, SimulatedCrash
from pyhudi.storage.locks import InProcessLock
from pyhudi.storage.memory import MemoryStorage
from tests.simulation.tables import SMALL, crash_points, sampled

SELECTOR = "hoodie.bootstrap.mode.selector"
MODES: dict[str, dict[str, object]] = {
    "metadata_only": {},
    "both": {
        SELECTOR: "BootstrapRegexModeSelector",
        f"{SELECTOR}.regex": "part=a",
    },
}
INSTANTS = {"metadata_only": ("00000000000001",), "both": ("00000000000001", "00000000000002")}
SETTLED = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id"}
PARTS = {"hoodie.datasource.write.partitionpath.field": "part", "hoodie.datasource.write.precombine.field": "ts"}
ROWS = {f"k{number}": number for number in range(4)}
_names = itertools.count()


class BootstrapWorld:
    """A source in memory, and a place for a table over it."""

    def __init__(self, **options: object) -> None:
        self.environment = ReplayEnvironment(7)
        self.options = {**SMALL, **SETTLED, **PARTS, **options}
        name = f"memory://bootstrap-{next(_names):06}"
        MemoryStorage(name, self.environment)
        self.source, self.target = f"{name}/source", f"{name}/table"
        storage = open_storage(self.source)
        for part, keys in (("a", ["k0", "k2"]), ("b", ["k1", "k3"])):
            rows = pa.table({"id": keys, "ts": pa.array([1, 1], pa.int64()), "value": pa.array([ROWS[key] for key in keys])})
            sink = io.BytesIO()
            pq.write_table(rows, sink)
            storage.put(f"part={part}/rows.parquet", sink.getvalue())
        self.before = self.files(self.source)

    def run(self, storage: Storage) -> None:
        """Bootstrap through a storage, under a lock that a dead process does not keep."""
        self.environment.advance_ms(3_600_000)
        options = parse_options(self.options)
        lock = InProcessLock(f"{self.target}-{next(_names)}", self.environment)
        target = BootstrapTarget(storage, self.environment, lock, options)
        run_bootstrap(target, open_storage(self.source), self.source, LocalEngine(1), BootstrapSettings.of(options))

    def files(self, uri: str) -> dict[str, int]:
        return {info.path: info.modified_ms for info in open_storage(uri).walk("")}

    @property
    def table(self) -> Table:
        return Table(self.target, options={key: value for key, value in self.options.items() if SELECTOR not in key})

    def check_complete(self) -> None:
        found = self.table.scan(["id", "value", "part"]).to_arrow().to_pylist()
        assert {row["id"]: row["value"] for row in found} == ROWS and len(found) == 4
        assert {row["part"] for row in found} == {"a", "b"}
        assert self.files(self.source) == self.before
        assert self.table.validate(keys=True).ok
        timeline = self.table.timeline()
        assert not timeline.pending()
        for path in self.files(self.target):
            name = path.rsplit("/", 1)[-1]
            if not path.startswith(".hoodie/") and not name.startswith("."):
                assert timeline.is_completed(name.split("_")[2].split(".")[0]), path


@pytest.mark.crash_points
@pytest.mark.parametrize("mode", MODES)
def test_failed_bootstrap_is_repeated(mode: str) -> None:
    """No process writes to what it left, and after the same call again the table is complete."""
    whole = BootstrapWorld(**MODES[mode])
    counted = FaultyStorage(open_storage(whole.target))
    whole.run(counted)
    whole.check_complete()
    with pytest.raises(TableExists):
        whole.run(open_storage(whole.target))
    upsert = pa.table({"id": ["k0"], "part": ["a"], "ts": pa.array([2], pa.int64()), "value": pa.array([9], pa.int64())})
    for fault in sampled(crash_points(counted.calls), counted.calls):
        _check_crash(mode, fault, upsert)


def _check_crash(mode: str, fault: Fault, upsert: pa.Table) -> None:
    ground = BootstrapWorld(**MODES[mode])
    with pytest.raises(SimulatedCrash):
        ground.run(FaultyStorage(open_storage(ground.target), fault))
    try:
        table = ground.table
    except TableNotFound:
        pass
    else:
        ground.environment.advance_ms(3_600_000)
        if len(table.timeline().completed_writes()) == len(INSTANTS[mode]):
            ground.check_complete()
            with pytest.raises(TableExists):
                ground.run(open_storage(ground.target))
            return
        with pytest.raises(TableState, match="run the bootstrap again"):
            table.upsert(upsert)
    ground.run(open_storage(ground.target))
    ground.check_complete()

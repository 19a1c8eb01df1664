"""Systems under test, and the worker processes that execute them."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.environments import ROOT, EnvironmentMissing, java_home, prepare_jars, prepare_python
from benchmarks.memory import Usage, Watch
from benchmarks.peers.base import Settings

STOP_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class System:
    """A system under test.

    Attributes:
        environment: Name of its interpreter in `environments`.
        peer: Its class, `module:Class` below `benchmarks.peers`.
        reads_of: Systems whose tables it reads, best first, if it does not write its own.
        options: Table options.
        source: Folder of PyHudi's sources if not this checkout's.
    """

    name: str
    title: str
    environment: str
    peer: str
    on_spark: bool = False
    reads_of: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""


def _variant(name: str, title: str, options: Mapping[str, Any]) -> System:
    return System(name, title, "pyhudi", "pyhudi_embedded:PyHudiEmbedded", options=options)


HUDI_TABLES = ("pyhudi", "pyhudi-spark", "hudi", "hudi-1.1")
SYSTEMS = (
    System("pyhudi-spark", "PyHudi on Spark", "pyhudi", "pyhudi_spark:PyHudiSpark", True),
    System("pyhudi", "PyHudi embedded", "pyhudi", "pyhudi_embedded:PyHudiEmbedded"),
    System("hudi", "Hudi 1.0.2, zstd", "hudi", "hudi:Hudi", True),
    System("hudi-1.1", "Hudi 1.1.1, zstd", "hudi-1.1", "hudi:Hudi", True),
    System("delta-spark", "Delta Lake on Spark", "delta-spark", "delta_spark:DeltaSpark", True),
    System("delta-rs", "delta-rs", "delta-rs", "delta_rs:DeltaRs"),
    System("pyiceberg", "pyiceberg", "pyiceberg", "iceberg:PyIceberg"),
    System("hudi-rs", "hudi-rs", "hudi-rs", "hudi_rs:HudiRs", reads_of=HUDI_TABLES),
    System("spark-parquet", "Spark's Parquet", "pyhudi", "limits:SparkParquet", True, HUDI_TABLES[1:]),
    System("polars", "Polars", "pyhudi", "limits:Polars", reads_of=HUDI_TABLES),
    System("duckdb", "DuckDB", "pyhudi", "limits:DuckDb", reads_of=HUDI_TABLES),
    _variant("pyhudi-no-metadata", "PyHudi, no metadata table", {"hoodie.metadata.enable": False}),
    _variant("pyhudi-cdc", "PyHudi, change data", {"hoodie.table.cdc.enabled": True}),
    _variant("pyhudi-record-index", "PyHudi, record index", {"hoodie.metadata.record.index.enable": True}),
    _variant("pyhudi-logs", "PyHudi, no compaction", {"hoodie.compact.inline": False, "hoodie.clean.automatic": False}),
)
BY_NAME = {system.name: system for system in SYSTEMS}


class WorkerLost(Exception):
    """The worker process ended or did not answer in time; it is gone."""


class Worker:
    """The process of one system, started on first use and again after it was stopped or lost."""

    def __init__(self, system: System, core_count: int, driver_memory: str, folder: Path, timeout_s: float) -> None:
        """Create the environment of the system. Raises EnvironmentMissing. folder: for logs and scratch files."""
        self.system = system
        self._python = prepare_python(system.environment)
        self._java_home = java_home() if system.on_spark else None
        jars = tuple(map(str, prepare_jars(system.environment)))
        scratch = str(folder / "scratch" / system.name)
        self._settings = Settings(core_count, driver_memory, scratch, jars, dict(system.options))
        self._code = copy_code(folder / "code")
        self._log = folder / "logs" / f"{system.name}.log"
        self.timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self.versions: dict[str, str] = {}

    def start(self) -> dict[str, Any]:
        """Start the process, unless it runs, and the system in it."""
        if self._process is not None:
            return {"status": "ok"}
        self._log.parent.mkdir(parents=True, exist_ok=True)
        Path(self._settings.scratch).mkdir(parents=True, exist_ok=True)
        path = os.pathsep.join([*([self.system.source] if self.system.source else []), str(self._code)])
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"}
        if self._java_home is not None:
            environment["JAVA_HOME"] = str(self._java_home)
            # An installed Spark must not replace the one of the environment.
            environment.pop("SPARK_HOME", None)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._python), "-m", "benchmarks.worker", self.system.peer],
                cwd=self._settings.scratch,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._pending = b""
        reply = self.send({"command": "start", "settings": asdict(self._settings)})
        self.versions = reply.get("versions", self.versions)
        if reply["status"] != "ok":
            self.stop()
        return reply

    def measure(self, request: dict[str, Any]) -> tuple[dict[str, Any], Usage | None]:
        """Reply to a `run` and its usage; memory of earlier steps is released before. Raises WorkerLost."""
        self.send({"command": "settle"})
        assert self._process is not None
        watch = Watch(self._process.pid)
        with watch:
            reply = self.send(request)
        return reply, watch.usage if reply["status"] == "ok" else None

    def send(self, request: dict[str, Any]) -> dict[str, Any]:
        """One request, one reply. Raises WorkerLost."""
        process = self._process
        if process is None:
            raise WorkerLost("not started")
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request, default=str).encode() + b"\n")
            process.stdin.flush()
        except OSError as error:
            self.kill()
            raise WorkerLost(f"the process ended; see {self._log}") from error
        reply: dict[str, Any] = json.loads(self._line(time.monotonic() + self.timeout_s))
        return reply

    def stop(self) -> None:
        """End the process in good order, or by force."""
        process = self._process
        if process is None:
            return
        timeout_s, self.timeout_s = self.timeout_s, STOP_TIMEOUT_S
        try:
            self.send({"command": "stop"})
            process.wait(STOP_TIMEOUT_S)
        except (WorkerLost, subprocess.TimeoutExpired):
            pass
        self.timeout_s = timeout_s
        self.kill()

    def kill(self) -> None:
        """End the process and its children: the session that `start` created for them."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            os.killpg(process.pid, 9)
        except OSError:
            pass  # all have ended
        process.wait()

    def _line(self, deadline: float) -> bytes:
        assert self._process is not None and self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._pending:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(descriptor, 1 << 16) if ready else b""
            if not chunk:
                self.kill()
                raise WorkerLost(f"the process ended; see {self._log}" if ready else f"no answer within {self.timeout_s:.0f} s")
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return line


def copy_code(folder: Path) -> Path:
    """A copy of the sources, so that a run of hours is of one version."""
    if not folder.exists():
        leftovers = shutil.ignore_patterns("__pycache__")
        for source in (ROOT / "benchmarks", *(path for path in (ROOT / "src").glob("*") if path.is_dir())):
            shutil.copytree(source, folder / source.name, ignore=leftovers)
    return folder


@contextmanager
def running(
    systems: Sequence[System], core_count: int, driver_memory: str, folder: Path, timeout_s: float
) -> Iterator[tuple[dict[str, Worker], dict[str, str]]]:
    """A started worker per system, and the reasons of those that do not run. Workers end with the `with` block."""
    workers: dict[str, Worker] = {}
    missing: dict[str, str] = {}
    try:
        for system in systems:
            try:
                workers[system.name] = worker = Worker(system, core_count, driver_memory, folder, timeout_s)
                reply = worker.start()
                reason = "" if reply["status"] == "ok" else reply["message"]
            except (EnvironmentMissing, WorkerLost) as error:
                reason = str(error)
            if reason:
                missing[system.name] = reason
                workers.pop(system.name, None)
                print(f"benchmarks: {system.name} does not run: {reason}", file=sys.stderr)
        yield workers, missing
    finally:
        for worker in workers.values():
            worker.stop()

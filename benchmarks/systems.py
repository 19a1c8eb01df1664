"""The systems under test: their names, environments and roles, and the worker processes that run them."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.environments import ROOT, EnvironmentMissing, java_home, prepare_jars, prepare_python
from benchmarks.memory import Usage, Watch
from benchmarks.peers.base import Settings

STOP_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class System:
    """name: also the worker's. title: for the report. environment: whose interpreter it needs. role: `ours`, `peer` or `limit`.

    reads_of: for a system that cannot write, or whose own files would not be the same work, the systems whose table it reads,
    best first. kinds: the table kinds in whose steps it takes part. grows: whether the growth run has it, unless told otherwise.
    """

    name: str
    title: str
    environment: str
    role: str
    on_spark: bool
    reads_of: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ("cow", "mor")
    grows: bool = True


SYSTEMS = (
    System("pyhudi-spark", "PyHudi on Spark", "pyhudi", "ours", True),
    System("pyhudi", "PyHudi embedded", "pyhudi", "ours", False),
    # Its own codec, gzip, matters where base files are written: on Copy on Write. The rest is long enough with one Hudi.
    System("hudi", "Apache Hudi", "hudi", "peer", True, kinds=("cow",), grows=False),
    System("hudi-zstd", "Apache Hudi, zstd", "hudi", "peer", True),
    System("delta-spark", "Delta Lake on Spark", "delta-spark", "peer", True),
    System("delta-rs", "delta-rs", "delta-rs", "peer", False),
    System("hudi-rs", "hudi-rs", "hudi-rs", "peer", False, ("pyhudi", "pyhudi-spark", "hudi-zstd", "hudi")),
    System("spark-parquet", "spark.read.parquet", "pyhudi", "limit", True, ("pyhudi-spark", "pyhudi", "hudi-zstd", "hudi")),
    System("pyarrow", "PyArrow", "pyhudi", "limit", False, ("pyhudi", "pyhudi-spark", "hudi-zstd", "hudi")),
)
BY_NAME = {system.name: system for system in SYSTEMS}


class WorkerLost(Exception):
    """The worker process ended or did not answer in time; it is gone."""


class Worker:
    """The process of one system. Started on first use, and again after it was stopped or lost."""

    def __init__(self, system: System, core_count: int, driver_memory: str, folder: Path, timeout_s: float) -> None:
        """Makes the environment that the system needs; raises EnvironmentMissing. folder: for logs and scratch files."""
        self.system = system
        self._python = prepare_python(system.environment)
        self._jars = prepare_jars(system.environment)
        self._java_home = java_home() if system.on_spark else None
        self._settings = Settings(core_count, driver_memory, str(folder / "scratch" / system.name), tuple(map(str, self._jars)))
        self._code = copy_code(folder / "code")
        self._log = folder / "logs" / f"{system.name}.log"
        self.timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self.versions: dict[str, str] = {}

    def start(self) -> dict[str, Any]:
        """Starts the process, unless it runs, and the system in it. The status of the reply says whether the system is up."""
        if self._process is not None:
            return {"status": "ok"}
        self._log.parent.mkdir(parents=True, exist_ok=True)
        Path(self._settings.scratch).mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "PYTHONPATH": str(self._code), "PYTHONHASHSEED": "0"}
        if self._java_home is not None:
            environment["JAVA_HOME"] = str(self._java_home)
            # A Spark installed on the machine must not take the place of the one in the environment.
            environment.pop("SPARK_HOME", None)
        command = [str(self._python), "-m", "benchmarks.peers.worker", self.system.name]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self._settings.scratch,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._pending = b""
        reply = self.ask({"command": "start", "settings": asdict(self._settings)})
        self.versions = reply.get("versions", self.versions)
        if reply["status"] != "ok":
            self.stop()
        return reply

    def measure(self, request: dict[str, Any]) -> tuple[dict[str, Any], Usage | None]:
        """The reply to a `run`, and what it used; the memory that earlier steps left is given back before. Raises WorkerLost."""
        self.ask({"command": "settle"})
        assert self._process is not None
        watch = Watch(self._process.pid)
        with watch:
            reply = self.ask(request)
        return reply, watch.usage if reply["status"] == "ok" else None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """One request, one reply. Raises WorkerLost."""
        process = self._process
        if process is None:
            raise WorkerLost("not started")
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except OSError as error:
            self.kill()
            raise WorkerLost(f"the process ended; see {self._log}") from error
        reply: dict[str, Any] = json.loads(self._line(time.monotonic() + self.timeout_s))
        return reply

    def stop(self) -> None:
        """Ends the process in good order, or by force when it does not."""
        process = self._process
        if process is None:
            return
        timeout_s, self.timeout_s = self.timeout_s, STOP_TIMEOUT_S
        try:
            self.ask({"command": "stop"})
            process.wait(STOP_TIMEOUT_S)
        except (WorkerLost, subprocess.TimeoutExpired):
            pass
        self.timeout_s = timeout_s
        self.kill()

    def kill(self) -> None:
        """Ends the process and its children: the session that `start` made for them, and no other."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            os.killpg(process.pid, 9)
        except OSError:
            pass  # all of them have ended
        process.wait()

    def _line(self, deadline: float) -> bytes:
        assert self._process is not None and self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._pending:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(descriptor, 1 << 16) if ready else b""
            if not chunk:
                self.kill()
                raise WorkerLost(
                    f"no answer within {self.timeout_s:.0f} s" if not ready else f"the process ended; see {self._log}"
                )
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return line


def copy_code(folder: Path) -> Path:
    """The sources as they are now, copied once per run: a run of hours is then a run of one version, whatever is edited."""
    if not folder.exists():
        leftovers = shutil.ignore_patterns("__pycache__")
        for source in (ROOT / "benchmarks", *(path for path in (ROOT / "src").glob("*") if path.is_dir())):
            shutil.copytree(source, folder / source.name, ignore=leftovers)
    return folder


@contextmanager
def running(
    names: Sequence[str], core_count: int, driver_memory: str, folder: Path, timeout_s: float
) -> Iterator[tuple[dict[str, Worker], dict[str, str]]]:
    """A worker per system, started, and for those that cannot be had the reason. The workers end with the `with` block."""
    workers: dict[str, Worker] = {}
    missing: dict[str, str] = {}
    try:
        for name in names:
            try:
                workers[name] = Worker(BY_NAME[name], core_count, driver_memory, folder, timeout_s)
                reply = workers[name].start()
                reason = "" if reply["status"] == "ok" else reply["message"]
            except (EnvironmentMissing, WorkerLost) as error:
                reason = str(error)
            if reason:
                missing[name] = reason
                workers.pop(name, None)
                print(f"benchmarks: {name} does not run: {reason}", file=sys.stderr)
        yield workers, missing
    finally:
        for worker in workers.values():
            worker.stop()

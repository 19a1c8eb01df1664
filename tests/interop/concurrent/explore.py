"""Apache Hudi and processes of PyHudi write and service one table at the same time, killed and suspended at random.

    python -m tests.interop.concurrent.explore --release 1.0.2 --lock zookeeper --seed 1 --seconds 600

One JVM of Hudi and two processes of PyHudi upsert and delete rows of their own and rows of all, compact, cluster, clean and
archive. The processes of PyHudi are killed (SIGKILL) or suspended (SIGSTOP) at storage calls that the seed chooses, and started
or continued again; the JVM may be killed too. What must hold: see `tests.interop.concurrent.history`. At the end `validate` finds
nothing, Hudi reads the same rows as PyHudi with and without the metadata table, and both write once more.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from pyhudi import Table
from pyhudi.errors import HudiError
from pyhudi.storage.process_identity import Process
from tests.conformance.servers import running_zookeeper
from tests.interop.concurrent.cases import INDEXES, Case, rows, shared_keys
from tests.interop.concurrent.history import WRITE_ID, Effect, History, Outcome, committed_writes, violations
from tests.interop.concurrent.writer import SERVING, choose_effect
from tests.interop.oracle import ROOT, ApacheHudi, HudiFailure, HudiUnavailable
from tests.support.needs import SMALL_JVM, java_home

HUDI = "h"
_OPERATION = "hoodie.datasource.write.operation"
# Messages of Hudi for a write that lost to another one, so that its commit is not on the timeline.
_CONFLICTS = ("HoodieWriteConflictException", "ConcurrentModificationException", "HoodieClusteringUpdateException")
_SUSPENDED_FOR = (1, 3)
"""Outcomes of other writers."""


@dataclass
class Run:
    """One run of a case.

    Attributes:
        path: Of the table, unless `uri` names it; files of the run are next to it.
        address: Of the ZooKeeper server.
        uri: Of a table in an object store, for which Hudi's session has the settings. storage: PyHudi's options for it.
        overtaken: Writes of Hudi that no reader finds, by a known fault of Hudi: nothing else is checked then.
    """

    case: Case
    path: Path
    hudi: ApacheHudi
    address: str | None = None
    uri: str = ""
    storage: Mapping[str, str] = field(default_factory=dict)
    history: History = field(default_factory=History)
    overtaken: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def location(self) -> str:
        """Where the table is."""
        return self.uri or str(self.path)

    def table(self, **options: Any) -> Table:
        """The table, with the options of PyHudi's writers."""
        return Table(self.location, dict(self.storage), {**self.case.pyhudi_options(self.address), **options})

    @property
    def over_file(self) -> Path:
        """Exists when Hudi has ended."""
        return self.path.with_name(f"{self.path.name}-over")

    def run(self) -> list[str]:
        """Run all processes to their end, and return what was wrong."""
        options = self.case.pyhudi_options(self.address)
        table = Table.create(
            self.location,
            name="t",
            record_key="id",
            partition_by="part",
            table_type=self.case.kind,
            storage_options=self.storage,
            options=options,
        )
        first: Effect = dict.fromkeys(shared_keys(), "first")
        self.history.add("first", {"begun": "first", "effect": first})
        table.upsert(rows(first), options={WRITE_ID: "first"})
        self.history.add("first", {"ended": "first", "outcome": Outcome.ACKNOWLEDGED})
        if self.case.index == "secondary":
            table.index.create("secondary_index", "v", name="v")
        threads = [
            threading.Thread(target=self._guarded, args=(name, engine))
            for name, engine in zip(self.case.names(), self.case.writers, strict=True)
        ]
        for thread in threads:
            thread.start()
        try:
            hudi = HudiWriter(self)
            hudi.prepare()
            self.history.await_ready(self.case.names())
            hudi.run()
        finally:
            self.over_file.touch()
            self.over.set()
            self.history.notify()
            for thread in threads:
                thread.join()
        return Check(self).run()

    def _guarded(self, name: str, engine: str) -> None:
        try:
            self._run_writer(name, engine)
        except BaseException:
            self.history.add(name, {"wrong": traceback.format_exc()})

    def _run_writer(self, name: str, engine: str) -> None:
        """Read the reports of a writer until it ends."""
        rng = random.Random(f"{self.case.seed}/{name}")
        words = {
            "path": self.location,
            "storage": dict(self.storage),
            "name": name,
            "seed": self.case.seed,
            "engine": engine,
            "over": str(self.over_file),
        }
        words |= {"index": self.case.index}
        with self.path.with_name(f"{self.path.name}-{name}.log").open("wb") as log:
            process = self._start({**words, "options": self.case.pyhudi_options(self.address)}, log)
        assert process.stdin is not None and process.stdout is not None
        for line in process.stdout:
            if not line.startswith("{"):
                continue
            words = json.loads(line)
            self.history.add(name, words)
            if "stopped" in words:
                self.history.await_outcomes(rng.randint(*_SUSPENDED_FOR), self.over)
            if "killed" in words:
                self._remove_lock_of(words["killed"])
            if "stopped" in words or "killed" in words:
                process.stdin.write("\n")
                process.stdin.flush()
        if process.wait() or name not in self.history.ready:
            self.history.add(name, {"wrong": f"ended with {process.returncode}"})

    def _start(self, words: Mapping[str, Any], log: IO[bytes]) -> subprocess.Popen[str]:
        home = java_home(17, 99)
        spark = {"JAVA_HOME": str(home), "JDK_JAVA_OPTIONS": SMALL_JVM, "SPARK_LOCAL_IP": "127.0.0.1"}
        python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        environment = {**os.environ, **python, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))}
        return subprocess.Popen(
            [sys.executable, "-m", "tests.interop.concurrent.writer", json.dumps(words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=ROOT,
            env={**environment, **(spark if words["engine"] == "spark" else {})},
        )

    def _remove_lock_of(self, pid: int | None) -> None:
        """Remove the lock file of a dead process, as its operator does; pid: None for that of Hudi."""
        file = self.path / ".hoodie" / "lock"
        try:
            owner = Process.parse(str(json.loads(file.read_text() or "{}").get("owner", "")).partition(":")[0])
        except (OSError, ValueError):
            return
        if (None if owner is None else owner.pid) == pid:
            file.unlink(missing_ok=True)


@dataclass
class HudiWriter:
    """The steps of Hudi, one after the other."""

    of: Run

    def run(self) -> None:
        case = self.of.case
        rng = random.Random(f"{case.seed}/{HUDI}")
        killed_at = rng.randrange(2, case.steps) if case.kills_hudi else -1
        for step in range(case.steps):
            killer = threading.Timer(rng.uniform(0.2, 5), self._kill) if step == killed_at else None
            if killer is not None:
                killer.start()
            try:
                self._step(rng, f"{HUDI}{step}")
            except HudiUnavailable:
                if killer is None:
                    raise
            if killer is not None:
                killer.join()
                # A step that ended before the kill leaves it to the next request to notice that the process is gone.
                with contextlib.suppress(HudiUnavailable):
                    self.of.hudi.run("result = None")
                self.of._remove_lock_of(None)
                self.prepare()

    def _kill(self) -> None:
        self.of.hudi.kill()
        self.of.history.kills += 1

    def prepare(self) -> None:
        options = self.of.case.hudi_options(self.of.address)
        self.of.hudi.run(_SET, options={key: _text(value) for key, value in options.items()})
        self.of.hudi.register(self.of.location, "concurrent")

    def _step(self, rng: random.Random, write: str) -> None:
        choice = rng.random()
        if choice < 0.6:
            self.write(choose_effect(rng, HUDI, write), write)
        elif choice < 0.75:
            self._attempt("read", lambda: self.of.history.add(HUDI, {"rows": self.read()}))
        else:
            services = ["run_clean(table => 'concurrent')", "run_clustering(table => 'concurrent', op => 'scheduleAndExecute')"]
            if self.of.case.kind == "mor":
                services += [f"run_compaction(table => 'concurrent', op => '{op}')" for op in ("scheduleAndExecute", "run")]
            service = "CALL " + rng.choice(services)
            if self.of.case.index == "builds" and rng.random() < 0.4:
                created = "record_index" in self.of.table().config.metadata_partitions
                service = "DROP INDEX record_index ON concurrent" if created else "CREATE INDEX record_index ON concurrent (id)"
            self._attempt(service, lambda: self.of.hudi.sql(service))

    def write(self, effect: Effect, write: str) -> None:
        """Upsert or delete, and report the outcome."""
        history = self.of.history
        history.add(HUDI, {"begun": write, "effect": effect})
        operation = "delete" if None in effect.values() else "upsert"
        try:
            options = {**self.of.case.hudi_options(self.of.address), _OPERATION: operation, WRITE_ID: write}
            self.of.hudi.write(rows(effect), self.of.location, **options)
            history.add(HUDI, {"ended": write, "outcome": Outcome.ACKNOWLEDGED})
        except HudiFailure as failure:
            # Hudi may fail after its commit too, for example in services that follow it.
            refused = any(failure.mentions(name) for name in _CONFLICTS)
            outcome = Outcome.REFUSED if refused else Outcome.UNKNOWN
            history.add(HUDI, {"ended": write, "outcome": outcome, "error": _short(failure)})

    def read(self, **options: Any) -> list[tuple[str, str]]:
        """The rows that Hudi reads."""
        found = self.of.hudi.read(self.of.location, columns=["id", "v"], **{"hoodie.metadata.enable": True, **options})
        return list(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))

    def _attempt(self, name: str, run: Any) -> None:
        try:
            run()
            self.of.history.add(HUDI, {"service": name, "result": "done"})
        except HudiFailure as failure:
            self.of.history.add(HUDI, {"service": name, "result": "failed", "error": f"{name}: {_short(failure)}"})


@dataclass
class Check:
    """What must hold when all processes have ended."""

    of: Run

    def run(self) -> list[str]:
        # No process runs any more, and the plans that Hudi has started are those of a JVM that was killed.
        table = self.of.table(**{"pyhudi.service.expiry.ms": 0})
        committed = committed_writes(table)
        self.of.overtaken += [write for write, commits in committed.items() if any(commit.is_overtaken for commit in commits)]
        if self.of.overtaken:
            return []
        writer = HudiWriter(self.of)
        wrong = [f"before services: {text}" for text in self._look(table, writer)]
        for name in (HUDI, "pyhudi"):
            wrong += self._write(table, writer, name)
        try:
            table.clean()
            outcome = table.run_services(options=SERVING)
            self.of.history.services[f"at the end: {dict(outcome)}"] += 1
        except HudiError as error:
            wrong.append(f"services at the end: {type(error).__name__}: {error}")
        wrong += [f"after services: {text}" for text in self._look(table, writer)]
        return list(dict.fromkeys(wrong))

    def _write(self, table: Table, writer: HudiWriter, name: str) -> list[str]:
        write, effect = f"{name} last", {f"{name}last0": "last", shared_keys()[0]: f"{name} last"}
        if name == HUDI:
            before = len(self.of.history.errors)
            writer.write(effect, write)
            done = self.of.history.outcomes[write] is Outcome.ACKNOWLEDGED
            return [] if done else [f"Hudi fails to write at the end: {list(self.of.history.errors)[before:]}"]
        self.of.history.add(name, {"begun": write, "effect": effect})
        try:
            table.upsert(rows(effect), options={WRITE_ID: write})
        except HudiError as error:
            return [f"PyHudi fails to write at the end: {type(error).__name__}: {error}"]
        self.of.history.add(name, {"ended": write, "outcome": Outcome.ACKNOWLEDGED})
        return []

    def _look(self, table: Table, writer: HudiWriter) -> list[str]:
        try:
            scan = table.scan(["id", "v"]).to_arrow()
            found = list(zip(scan["id"].to_pylist(), scan["v"].to_pylist(), strict=True))
            wrong = violations(self.of.history, committed_writes(table), found)
            report = table.validate(keys=True)
        except HudiError as error:
            return [f"PyHudi: {''.join(traceback.format_exception(error))[-2000:]}"]
        if not report.ok:
            wrong.append(str(report))
        # Without its metadata table, Hudi hides log files that follow the base file of a pending write.
        for enabled in (True,) if table.timeline().pending_writes() else (True, False):
            try:
                theirs = writer.read(**{"hoodie.metadata.enable": enabled})
            except HudiFailure as failure:
                wrong.append(f"Hudi cannot read, metadata {enabled}: {_short(failure)}")
                continue
            if sorted(theirs) != sorted(found):
                wrong.append(f"Hudi reads other rows, metadata {enabled}: {sorted(set(theirs) ^ set(found))[:8]}")
        return wrong


_SET = """
for key, value in options.items():
    spark.conf.set(key, value)
"""


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _short(failure: HudiFailure) -> str:
    return " <- ".join(f"{name.rpartition('.')[2]}: {message[:300]}" for name, message in failure.causes)[:900]


def figures(history: History) -> str:
    """Figures of a run, in one line."""
    counts = [f"{history.count(outcome)} {outcome.value}" for outcome in Outcome]
    of_hudi = history.count(Outcome.ACKNOWLEDGED, HUDI)
    return (
        f"{', '.join(counts)} writes ({of_hudi} acknowledged of Hudi), {history.kills} kills, {history.suspensions} suspensions"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", default="1.0.2")
    parser.add_argument("--lock", choices=("file", "zookeeper"), default="zookeeper")
    parser.add_argument("--kind", choices=("cow", "mor"))
    parser.add_argument("--writers", nargs=2, choices=("embedded", "spark"), default=("embedded", "embedded"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=12, help="of Hudi in a run")
    parser.add_argument("--kills-hudi", action="store_true")
    parser.add_argument("--index", choices=tuple(INDEXES))
    parser.add_argument("--folder", type=Path, help="for tables of runs with defects")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="concurrent-"))
    hudi = ApacheHudi(folder / "jvm", folder / "jvm.log", given.release)
    end, seed, failed, void, total = time.monotonic() + given.seconds, given.seed, 0, 0, History()
    with contextlib.ExitStack() as stack:
        stack.callback(hudi.close)
        address = None
        if given.lock == "zookeeper":
            (folder / "zookeeper").mkdir(parents=True)
            address = stack.enter_context(running_zookeeper(folder / "zookeeper")).address
        while time.monotonic() < end:
            rng = random.Random(seed)
            kind, index = given.kind or rng.choice(("cow", "mor")), given.index or rng.choice(("bloom", "record"))
            case = Case(given.release, kind, given.lock, index, tuple(given.writers), seed, given.steps)
            case = replace(case, kills_hudi=given.kills_hudi)
            run, begun = Run(case, folder / f"t{seed}", hudi, address), time.monotonic()
            wrong = run.run()
            failed += bool(wrong)
            print(
                f"{'WRONG' if wrong else 'right'} {case}\n  {figures(run.history)}, {time.monotonic() - begun:.0f} s", flush=True
            )
            for text in wrong:
                print(f"  - {text}")
            if given.verbose or wrong:
                for counted in (run.history.errors, run.history.services):
                    for text, count in counted.most_common():
                        print(f"    {count:3} {text}")
            for name in ("kills", "suspensions"):
                setattr(total, name, getattr(total, name) + getattr(run.history, name))
            total.outcomes |= {f"{seed} {write}": outcome for write, outcome in run.history.outcomes.items()}
            total.writers |= {f"{seed} {write}": writer for write, writer in run.history.writers.items()}
            seed += 1
    print(
        f"seeds {given.seed} to {seed - 1}: {failed} with defects, {void} in which Hudi planned late; {figures(total)}; {folder}"
    )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

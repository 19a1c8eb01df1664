"""A writer of PyHudi in a concurrent run: it writes, reads and runs services until the file `over` exists.

    python -m tests.interop.concurrent.writer '{"path": "/tmp/t", "name": "e0_", "seed": 1, "engine": "embedded",
                                                "index": "bloom", "over": "/tmp/over", "options": {}, "storage": {}}'

This process imports everything and forks one that works, which is killed or suspended at storage calls that the seed chooses.
After it was killed another one is forked. Each printed line is a JSON object, see `History.add`; after `stopped` and `killed`
the writer reads a line of its input before it goes on.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from pyhudi import Table
from pyhudi.errors import (
    CommitUnknown,
    HudiError,
    ServiceFailed,
    SnapshotOutdated,
    StorageUnavailable,
    TableState,
    WriteConflict,
)
from pyhudi.storage import open_storage
from pyhudi.storage.fault_injection import FaultyStorage, StorageCall
from tests.interop.concurrent.cases import keys_of, rows, shared_keys
from tests.interop.concurrent.history import WRITE_ID, Effect, Outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SERVICES = ("compact", "cluster", "clean", "archive", "log_compact", "all")
SERVING: Mapping[str, Any] = {
    "hoodie.clean.automatic": True,
    "hoodie.archive.automatic": True,
    "hoodie.clustering.inline": True,
    "hoodie.log.compaction.inline": True,
    "hoodie.log.compaction.blocks.threshold": 2,
}
"""Options under which every service runs."""
# Storage calls from one suspension or kill to the next; a write makes about a hundred.
_BETWEEN_FAULTS = 1_500
_SECONDS_OF_A_CALL = 0.02
# Errors that a conflict with another process explains.
_EXPECTED = (WriteConflict, SnapshotOutdated, StorageUnavailable, CommitUnknown, ServiceFailed, TableState)


def say(**words: object) -> None:
    print(json.dumps(words), flush=True)


def choose_effect(rng: random.Random, name: str, write: str) -> Effect:
    """An upsert of own and shared keys, or a delete of own keys."""
    if rng.random() < 0.15:
        return dict.fromkeys(rng.sample(keys_of(name), 2))
    return dict.fromkeys(rng.sample(keys_of(name), rng.randint(1, 3)) + rng.sample(shared_keys(), rng.randint(0, 2)), write)


def toggle_record_index(table: Table) -> Mapping[str, str]:
    """Build the record index, or drop it if it exists."""
    if any(info.name == "record_index" for info in table.index.list()):
        table.index.drop("record_index")
        return {"index": "dropped"}
    table.index.create("record_index")
    return {"index": "created"}


class Embedded:
    """PyHudi in this process."""

    def __init__(self, path: str, storage: Mapping[str, str], options: Mapping[str, Any]) -> None:
        self.path, self.storage, self.options = path, dict(storage), dict(options)

    def table(self) -> Table:
        return Table(self.path, self.storage, self.options)

    def write(self, effect: Effect, write: str) -> None:
        options = {WRITE_ID: write}
        if None in effect.values():
            self.table().delete(rows(effect).select(["id", "part"]), options=options)
        else:
            self.table().upsert(rows(effect), options=options)

    def read(self) -> list[tuple[str, str]]:
        found = self.table().scan(["id", "v"]).to_arrow()
        return list(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))

    def service(self, name: str) -> Mapping[str, str]:
        if name == "index":
            return toggle_record_index(self.table())
        return self.table().run_services(None if name == "all" else [name], options=SERVING)


class OnSpark(Embedded):
    """PyHudi on PySpark."""

    def __init__(self, path: str, storage: Mapping[str, str], options: Mapping[str, Any]) -> None:
        super().__init__(path, storage, options)
        self.spark = _start_spark()

    def write(self, effect: Effect, write: str) -> None:
        from pyhudi import spark as hs

        operation = "delete" if None in effect.values() else "upsert"
        options = {**self.options, WRITE_ID: write, "hoodie.datasource.write.operation": operation}
        # No batch is so small that it is written by the driver.
        options["pyhudi.spark.driver.batch.bytes"] = 0
        frame = self.spark.createDataFrame(rows(effect).to_pylist(), "id string, part string, v string")
        hs.write(frame, self.path, "append", options, self.storage)

    def read(self) -> list[tuple[str, str]]:
        from pyhudi import spark as hs

        return [(row["id"], row["v"]) for row in hs.read(self.spark, self.path, columns=["id", "v"]).collect()]

    def service(self, name: str) -> Mapping[str, str]:
        if name == "index":
            return super().service(name)
        return self.table().run_services(None if name == "all" else [name], spark=self.spark, options=SERVING)


def _start_spark() -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").appName("concurrent")
    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


ENGINES: Mapping[str, Callable[..., Embedded]] = {"embedded": Embedded, "spark": OnSpark}


def attempt(write: str, run: Callable[[], object]) -> None:
    """Run a write, and report its outcome."""
    try:
        run()
        say(ended=write, outcome=Outcome.ACKNOWLEDGED)
    except ServiceFailed as error:
        say(ended=write, outcome=Outcome.ACKNOWLEDGED, error=_text(error))
    except CommitUnknown as error:
        say(ended=write, outcome=Outcome.UNKNOWN, error=_text(error))
    except HudiError as error:
        say(ended=write, outcome=Outcome.REFUSED, error=_text(error), **_wrong(error))


def _wrong(error: HudiError) -> dict[str, str]:
    return {} if isinstance(error, _EXPECTED) else {"wrong": "".join(traceback.format_exception(error))[-3000:]}


def _text(error: HudiError) -> str:
    return f"{type(error).__name__}: {error}"


def work(given: Mapping[str, Any], run: int, faults: dict[int, str]) -> None:
    """Take steps until the file `over` exists. faults: number of a storage call -> signal that this process sends to itself."""

    def watch(number: int, call: StorageCall) -> None:
        name = faults.pop(number, None)
        if name is not None:
            say(signal=name, at=f"{call.operation} {call.path}")
            os.kill(os.getpid(), signal.Signals[f"SIG{name}"])

    storage: Mapping[str, str] = given["storage"]
    if given["engine"] == "spark":
        # Spark's workers do not count calls.
        threading.Thread(target=_send_signals, args=(faults,), daemon=True).start()
    else:
        counting = FaultyStorage(open_storage(given["path"], given["storage"]), listener=watch)
        storage = dict(counting.spec().options)
    engine = ENGINES[given["engine"]](given["path"], storage, given["options"])
    rng, name = random.Random(f"{given['seed']}/{given['name']}/{run}"), given["name"]
    say(ready=run)
    for turn in itertools.count(1):
        if os.path.exists(given["over"]):
            return
        write, choice = f"{name}{run}.{turn}", rng.random()
        try:
            if choice < 0.62:
                effect = choose_effect(rng, name, write)
                say(begun=write, effect=effect)
                attempt(write, partial(engine.write, effect, write))
            elif choice < 0.72:
                say(rows=engine.read())
            else:
                service = rng.choice((*_SERVICES, *(("index", "index") if given["index"] == "builds" else ())))
                say(service=service, result=dict(engine.service(service)))
        except HudiError as error:
            say(service="read or service", result=_text(error), error=_text(error), **_wrong(error))


def _send_signals(faults: Mapping[int, str]) -> None:
    """Send the signals of `faults` to this process, at a time for the number of each call."""
    passed = 0
    for number, name in sorted(faults.items()):
        time.sleep((number - passed) * _SECONDS_OF_A_CALL)
        passed = number
        say(signal=name, at="some time")
        os.kill(os.getpid(), signal.Signals[f"SIG{name}"])


def supervise(given: Mapping[str, Any]) -> None:
    """Fork a process that works, and another one when it was killed. This process opens no table."""
    rng = random.Random(f"{given['seed']}/{given['name']}")
    for run in itertools.count(1):
        # Suspensions, and a kill after them.
        places = itertools.accumulate(rng.randint(1, _BETWEEN_FAULTS) for _ in range(rng.randint(1, 4)))
        faults = dict.fromkeys(places, "STOP")
        faults[max(faults)] = "KILL"
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                work(given, run, faults)
                code = 0
            except BaseException:
                say(wrong=traceback.format_exc()[-3000:])
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, os.WUNTRACED)
        while os.WIFSTOPPED(status):
            say(stopped=pid)
            sys.stdin.readline()
            os.kill(pid, signal.SIGCONT)
            _, status = os.waitpid(pid, os.WUNTRACED)
        if not os.WIFSIGNALED(status):
            return
        say(killed=pid)
        sys.stdin.readline()


if __name__ == "__main__":
    supervise(json.loads(sys.argv[1]))

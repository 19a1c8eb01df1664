"""A worker process: one system under test, kept running, driven over pipes.  `python -m benchmarks.peers.worker <system>`

One JSON object per line on standard input, one back on standard output:

    {"command": "start", "settings": {...}}                                    -> {"versions": {...}}
    {"command": "settle"}                                                      -> {}
    {"command": "run", "step": "upsert", "table": {...}, "arguments": [...]}   -> {"seconds": 1.25}
    {"command": "answer"}                                                      -> {"answer": the last run's}
    {"command": "state", "table": {...}}                                       -> {"answer": the fingerprint of the table}
    {"command": "stop"}                                                        -> {}

Each reply has a `status`: "ok", "-" (the system has no such step), "not built", or "failed" with a `message`. The clock runs
around the operation alone. The answer is made by a command of its own, so that the caller can end its watch on the memory before.
Whatever else writes to standard output (a JVM, a library) lands on standard error.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, TextIO

from benchmarks.peers.base import NotBuilt, NotOffered, Peer, Settings, Table

# System -> the class that is it. Each module imports libraries that only its own environment has.
SYSTEMS = {
    "pyhudi-spark": "benchmarks.peers.pyhudi_spark:PyHudiSpark",
    "pyhudi": "benchmarks.peers.pyhudi_embedded:PyHudiEmbedded",
    "hudi": "benchmarks.peers.hudi:Hudi",
    "hudi-zstd": "benchmarks.peers.hudi:HudiZstd",
    "delta-spark": "benchmarks.peers.delta_spark:DeltaSpark",
    "delta-rs": "benchmarks.peers.delta_rs:DeltaRs",
    "hudi-rs": "benchmarks.peers.hudi_rs:HudiRs",
    "spark-parquet": "benchmarks.peers.spark_parquet:SparkParquet",
    "pyarrow": "benchmarks.peers.pyarrow_parquet:PyArrowParquet",
}


def main(system: str) -> None:
    replies = _claim_standard_output()
    module, name = SYSTEMS[system].split(":")
    peer: Peer | None = None
    answer: Callable[[], Any] = lambda: None  # noqa: E731
    for line in sys.stdin:
        request = json.loads(line)
        reply: dict[str, Any] = {"status": "ok"}
        try:
            match request["command"]:
                case "start":
                    settings = Settings(**{**request["settings"], "jars": tuple(request["settings"]["jars"])})
                    _keep_to_cores(settings.core_count)
                    peer = getattr(importlib.import_module(module), name)()
                    reply["versions"] = peer.start(settings)
                case "settle" if peer is not None:
                    gc.collect()
                    peer.settle()
                case "run" if peer is not None:
                    reply["seconds"], answer = _run(peer, request)
                case "answer":
                    reply["answer"] = answer()
                    answer = lambda: None  # noqa: E731
                case "state" if peer is not None:
                    reply["answer"] = peer.state(Table(**request["table"]))
                case "stop":
                    if peer is not None:
                        peer.stop()
                case other:
                    raise ValueError(f"no command {other!r}, or not before start")
        except NotOffered as error:
            reply = {"status": "-", "message": str(error)}
        except NotBuilt as error:
            reply = {"status": "not built", "message": str(error)}
        except Exception as error:
            traceback.print_exc()
            reply = {"status": "failed", "message": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()
        if request["command"] == "stop":
            return


def _run(peer: Peer, request: dict[str, Any]) -> tuple[float, Callable[[], Any]]:
    table = Table(**request["table"])
    if table.kind not in peer.kinds:
        raise NotOffered(f"no {table.kind} table")
    measured = getattr(peer, request["step"])(table, *request["arguments"])
    gc.collect()
    started = time.perf_counter()
    result = measured.operation()
    seconds = (time.perf_counter() - started) / measured.share
    return seconds, lambda: measured.answer(result)


def _claim_standard_output() -> TextIO:
    """The real standard output, for replies alone; descriptor 1 becomes standard error, also for child processes."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return replies


def _keep_to_cores(count: int) -> None:
    """All threads and children, the JVM too, run on the first `count` cores that this process may use. Libraries size their pools
    by that.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


if __name__ == "__main__":
    main(sys.argv[1])

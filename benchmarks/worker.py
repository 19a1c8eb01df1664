"""A worker process: one system under test, kept running. `python -m benchmarks.worker MODULE:CLASS`

One JSON object per line on standard input, one back on standard output:

    {"command": "start", "settings": {...}}                                    -> {"versions": {...}}
    {"command": "settle"}                                                      -> {}
    {"command": "run", "step": "upsert", "table": {...}, "arguments": [...]}   -> {"seconds": 1.25, "cpu_seconds": 1.5}
    {"command": "answer"}                                                      -> {"answer": that of the last run}
    {"command": "state", "table": {...}}                                       -> {"answer": fingerprint of the table}
    {"command": "stop"}                                                        -> {}

Each reply has a `status`: "ok", "-" (no such step), or "failed" with a `message`. cpu_seconds are those of all threads of this
process, without children. `repeat` executes the operation so many times. Other output goes to standard error.
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

from benchmarks.peers.base import NotOffered, Peer, Settings, Table


def main(name: str) -> None:
    replies = _claim_standard_output()
    module, class_name = name.split(":")
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
                    peer = getattr(importlib.import_module(f"benchmarks.peers.{module}"), class_name)()
                    reply["versions"] = peer.start(settings)
                case "settle" if peer is not None:
                    gc.collect()
                    peer.settle()
                case "run" if peer is not None:
                    figures, answer = _run(peer, request)
                    reply |= figures
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
        except Exception as error:
            traceback.print_exc()
            reply = {"status": "failed", "message": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()
        if request["command"] == "stop":
            return


def _run(peer: Peer, request: dict[str, Any]) -> tuple[dict[str, float], Callable[[], Any]]:
    table = Table(**request["table"])
    if table.kind not in peer.kinds:
        raise NotOffered(f"no {table.kind} table")
    measured = getattr(peer, request["step"])(table, *request["arguments"])
    share = measured.share * request.get("repeat", 1)
    gc.collect()
    cpu, started = time.process_time(), time.perf_counter()
    for _ in range(request.get("repeat", 1)):
        result = measured.operation()
    figures = {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - cpu}
    return {name: value / share for name, value in figures.items()}, lambda: measured.answer(result)


def _claim_standard_output() -> TextIO:
    """The real standard output, for replies only; descriptor 1 becomes standard error, also for child processes."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return replies


def _keep_to_cores(count: int) -> None:
    """Bind all threads and children to the first cores; libraries size their pools by that."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


if __name__ == "__main__":
    main(sys.argv[1])

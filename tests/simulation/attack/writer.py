"""One process of an attack: it writes to a table, prints what was acknowledged, and stops or dies at one of its storage calls.

    python -m tests.simulation.attack.writer '{"path": "/tmp/t", "name": "w0", "seed": 1, "turns": 4, "signal": "KILL", "at": 57,
                                    "options": {}}'

Each round upserts a key of its own and one that all writers share, or runs a service. Each line that it prints is a JSON object:
`turn` (the round) and `value` before an upsert, `acknowledged` with the completion time after it, `error` for a documented error,
`wrong` for anything that should not be.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from typing import Any

import pyarrow as pa

from pyhudi import Table
from pyhudi.errors import HudiError
from pyhudi.storage import open_storage
from pyhudi.storage.fault_injection import FaultyStorage, StorageCall

SHARED = "shared"


def say(**words: object) -> None:
    print(json.dumps(words), flush=True)


def write(path: str, name: str, seed: int, turns: int, options: dict[str, Any], at: int = 0, number: str = "KILL") -> None:
    """Run so many rounds.

    at: the storage call before which this process sends itself the signal `number`, 0 for none.
    """
    rng = random.Random(f"{seed}/{name}")

    def watch(call_number: int, call: StorageCall) -> None:
        if call_number == at:
            os.kill(os.getpid(), signal.Signals[f"SIG{number}"])

    storage = FaultyStorage(open_storage(path), listener=watch)
    table = Table(path, dict(storage.spec().options), options)
    mine: int | None = None
    for turn in range(turns):
        value = int(name[1:]) * 1000 + turn
        try:
            service = rng.choice(("", "", "", "cluster", "compact", "clean", "archive"))
            if service:
                table.run_services([service])
            say(turn=turn, value=value)
            done = table.upsert(pa.table({"id": [name, SHARED], "v": pa.array([value, value], pa.int64())}))
            mine = value
            say(acknowledged=value, completion=done.completion_time)
        except HudiError as error:
            say(error=f"{type(error).__name__}: {error}")
            # Whether this one landed is not known.
            mine = None
        if mine is None:
            continue
        try:
            found = table.scan(["v"], f"id = '{name}'").to_arrow()["v"].to_pylist()
        except HudiError as error:
            # A reader that is so slow that others have cleaned its files gets an error.
            say(error=f"{type(error).__name__}: {error}")
            continue
        if found != [mine]:
            say(wrong=f"{name} wrote {mine} and reads {found}")


def main() -> None:
    given = json.loads(sys.argv[1])
    given["number"] = given.pop("signal", "KILL")
    write(**given)


if __name__ == "__main__":
    main()

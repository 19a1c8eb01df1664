"""Interrupted calls (Ctrl-C in a notebook): the next call of this process and that of others can write."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

import pyhudi as hp
from tests.support.interruptions import count_steps, interrupt

_FILE_SYSTEM_LOCK = {"hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"}
# The lease of an interrupted call must be free long before it would expire.
_OPTIONS = {
    "hoodie.write.lock.wait_time_ms": "30000",
    "hoodie.write.lock.storage.validity.timeout.secs": "3600",
    "hoodie.write.lock.storage.renew.interval.secs": "1",
    "hoodie.metadata.enable": "false",
}
_LOCKS = ("acquisition", "in_process", "lease", "storage_lease", "lock_registry", "lock_provider", "file_system_lock")
_FILES = (
    *("contextlib.py", "storage/environment.py", "table/table_context.py"),
    *(f"storage/locks/{name}.py" for name in _LOCKS),
)


@pytest.mark.parametrize("provider", [{}, _FILE_SYSTEM_LOCK], ids=["lease", "file"])
def test_next_write_follows_one_or_more_interruptions_at_any_bytecode_of_the_lock(
    tmp_path: Path, provider: dict[str, str]
) -> None:
    options = {**_OPTIONS, **provider}
    table = hp.Table.create(tmp_path / "t", record_key="id", options=options)

    def upsert() -> None:
        table.upsert([{"id": 1}])

    upsert()
    last = count_steps(upsert, _FILES, opcodes=True)
    chosen = random.Random(24)
    for _ in range(12):
        # A second interruption soon after the first one meets what cleans up after that.
        first = chosen.randrange(1, last)
        steps = [first, *(first + chosen.randrange(1, 120) for _ in range(chosen.randrange(3)))]
        places: list[str] = []
        interrupt(upsert, _FILES, *steps, opcodes=True, where=places)
        try:
            hp.Table(tmp_path / "t", options=options).upsert([{"id": 2}])
            upsert()
        except hp.HudiError as error:
            raise AssertionError(f"interrupted at {places}") from error


_INTERRUPTED = """
import os, random, signal, sys, threading
import pyhudi as hp

table = hp.Table(sys.argv[1], options=eval(sys.argv[2]))
upsert = hp.Table.upsert.__code__
count, left = 0, 40

def interrupt(number, frame):
    global count
    while frame is not None and frame.f_code is not upsert:
        frame = frame.f_back
    if frame is not None:
        count += 1
        raise KeyboardInterrupt

def send():
    while count < left:
        for _ in range(random.randrange(1_000_000)):
            pass
        os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, interrupt)
sender = threading.Thread(target=send)
sender.start()
while count < left:
    try:
        table.upsert([{"id": 1}])
    except KeyboardInterrupt:
        pass
sender.join()
table.upsert([{"id": 3}])
print("written", flush=True)
sys.stdin.read()
"""


@pytest.mark.full
@pytest.mark.parametrize("provider", [{}, _FILE_SYSTEM_LOCK], ids=["lease", "file"])
def test_a_process_that_got_many_signals_blocks_no_writer(tmp_path: Path, provider: dict[str, str]) -> None:
    options = {**_OPTIONS, **provider}
    table = hp.Table.create(tmp_path / "t", record_key="id", options=options)
    command = [sys.executable, "-c", _INTERRUPTED, str(tmp_path / "t"), repr(options)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        table.upsert([{"id": 2}])
        process.communicate("")
    assert {2, 3} <= set(table.scan().to_arrow()["id"].to_pylist())

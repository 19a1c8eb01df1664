from __future__ import annotations

import mmap
import os
import subprocess
import sys

import pytest

from benchmarks.memory import PROC, Watch, tree_cpu_seconds

pytestmark = pytest.mark.skipif(not PROC.joinpath("self/statm").exists(), reason="needs /proc")


def test_memory_of_a_child_counts() -> None:
    program = "x = bytearray(80 << 20); print('held', flush=True); input()"
    with Watch(os.getpid()) as alone:
        pass
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin and child.stdout
        assert child.stdout.readline() == "held\n"
        with Watch(os.getpid()) as held:
            pass
        child.stdin.write("\n")
    assert held.usage.peak_rss_bytes >= held.usage.start_rss_bytes > alone.usage.start_rss_bytes + (80 << 20)


def test_a_short_peak_does_not_escape() -> None:
    with Watch(os.getpid()) as watch, mmap.mmap(-1, 120 << 20) as block:
        # Pages of its own: an allocator may hand out what the process holds already.
        block.write(bytes(120 << 20))
    assert watch.usage.peak_rss_bytes >= watch.usage.start_rss_bytes + (100 << 20)


def test_cpu_time_of_children_that_ended_counts() -> None:
    before = tree_cpu_seconds(os.getpid())
    subprocess.run([sys.executable, "-c", "sum(range(8_000_000))"], check=True)
    assert tree_cpu_seconds(os.getpid()) > before


def test_a_process_that_is_gone_is_no_error() -> None:
    with Watch(2**22 + 1) as watch:
        pass
    assert watch.usage.peak_rss_bytes == 0


def test_a_fork_that_has_not_become_a_program_does_not_count_twice() -> None:
    """The child of a process with 200 MB is its image, until it ends."""
    program = (
        "import os, sys\nx = bytearray(200 << 20)\nchild = os.fork()\n"
        "if not child:\n    sys.stdin.readline()\n    os._exit(0)\n"
        "print('forked', flush=True)\nos.waitpid(child, 0)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == "forked\n"
        with Watch(process.pid) as watch:
            pass
        process.stdin.write("\n")
    assert 200 << 20 < watch.usage.peak_rss_bytes < 300 << 20

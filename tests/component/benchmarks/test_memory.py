from __future__ import annotations

import os
import subprocess
import sys

import pytest

from benchmarks.memory import PROC, Watch, tree_cpu_seconds

pytestmark = pytest.mark.skipif(not PROC.joinpath("self/statm").exists(), reason="needs /proc")


class Program:
    """A separate process, whose memory no other code allocates or frees; it stops at each `say` until it reads a line."""

    def __init__(self, source: str) -> None:
        say = "import sys\ndef say(word):\n    print(word, flush=True)\n    sys.stdin.readline()\n"
        command = [sys.executable, "-c", say + source]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate("\n" * 9)

    def expect(self, word: str) -> bool:
        """Waits for its next word."""
        assert self.process.stdout is not None
        return self.process.stdout.readline() == f"{word}\n"

    def continue_(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


def test_memory_of_a_child_counts() -> None:
    child = "x = bytearray(80 << 20); print('held', flush=True); input()"
    with Program(f"import subprocess\nsay('alone')\nsubprocess.run([sys.executable, '-c', {child!r}])") as program:
        assert program.expect("alone")
        with Watch(program.process.pid) as alone:
            pass
        program.continue_()
        assert program.expect("held")
        with Watch(program.process.pid) as held:
            pass
    assert held.usage.peak_rss_bytes >= held.usage.start_rss_bytes > alone.usage.start_rss_bytes + (80 << 20)


def test_a_short_peak_does_not_escape() -> None:
    # Pages of its own: an allocator may hand out what the process holds already.
    peak = "with mmap.mmap(-1, 120 << 20) as block:\n    block.write(bytes(120 << 20))\n"
    with Program(f"import mmap\nsay('ready')\n{peak}say('over')") as program:
        assert program.expect("ready")
        with Watch(program.process.pid) as watch:
            program.continue_()
            assert program.expect("over")
    assert watch.usage.peak_rss_bytes >= watch.usage.start_rss_bytes + (100 << 20)


def test_cpu_time_of_children_that_ended_counts() -> None:
    before = tree_cpu_seconds(os.getpid())
    subprocess.run([sys.executable, "-c", "sum(range(8_000_000))"], check=True)
    assert tree_cpu_seconds(os.getpid()) > before


def test_watching_an_ended_process_is_no_error() -> None:
    with Watch(2**22 + 1) as watch:
        pass
    assert watch.usage.peak_rss_bytes == 0


def test_a_fork_that_has_not_become_a_program_does_not_count_twice() -> None:
    """The child of a process with 200 MB is its image, until it ends."""
    source = (
        "import os\nx = bytearray(200 << 20)\nchild = os.fork()\n"
        "if not child:\n    sys.stdin.readline()\n    os._exit(0)\n"
        "print('forked', flush=True)\nos.waitpid(child, 0)\n"
    )
    with Program(source) as program:
        assert program.expect("forked")
        with Watch(program.process.pid) as watch:
            pass
    assert 200 << 20 < watch.usage.peak_rss_bytes < 300 << 20

"""A process that answers each line with one line, until its input ends."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from typing import IO

from benchmarks.environments import ROOT


class Asked:
    """The process of a command.  pid: its number; environment: None for this process's own."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid

    def ask(self, line: str) -> str:
        """Its answer to a line.  Raises RuntimeError where the process ended."""
        stdin, stdout = self._pipes()
        stdin.write(f"{line}\n")
        stdin.flush()
        answer = stdout.readline()
        if not answer:
            raise RuntimeError(f"{line}: the process ended with {self._process.wait()}")
        return answer

    def close(self) -> None:
        """End its input, and wait until it has ended."""
        stdin, stdout = self._pipes()
        stdin.close()
        stdout.close()
        self._process.wait()

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin is not None and self._process.stdout is not None
        return self._process.stdin, self._process.stdout

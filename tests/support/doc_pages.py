"""Code blocks of the documentation, and how a page is run."""

from __future__ import annotations

import os
import re
import shlex
import string
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from typer.testing import CliRunner

import pyhudi as hp
from pyhudi.cli.app import app
from pyhudi.operations.commit import events

ROOT = Path(__file__).resolve().parents[2]
ENGINES = frozenset({"daft", "dask", "datafusion", "duckdb", "ray", "sqlglot"})
"""Of these some are too large to be installed for the tests alone; a snippet with one of them stands by itself."""


@dataclass(frozen=True, slots=True)
class Snippet:
    language: str
    text: str

    @property
    def needs_spark(self) -> bool:
        return self.language == "python" and re.search(r"\bspark\b", self.text) is not None

    @property
    def lacks_its_engine(self) -> bool:
        """Whether it shows how an engine of others reads a table, and that one is not installed."""
        named = set(re.findall(r"^(?:import|from) (\w+)", self.text, re.M)) if self.language == "python" else set()
        if re.search(r"\bhp\.sql\(|^pyhudi sql", self.text, re.M):
            named |= {"sqlglot", "duckdb"}
        return any(find_spec(name) is None for name in named & ENGINES)


def snippets(page: Path) -> list[Snippet]:
    return [Snippet(*found) for found in re.findall(r"^```(python|sh)\n(.*?)^```", page.read_text("utf-8"), re.S | re.M)]


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def run_page(page: Path, folder: Path, names: dict[str, object], *, on_spark: bool) -> None:
    """Run a page's snippets in a folder.  on_spark: also those that need Spark."""
    shell = Shell(folder)
    listeners, environment = events._listeners, dict(os.environ)
    try:
        for snippet in snippets(page):
            if (snippet.needs_spark and not on_spark) or snippet.lacks_its_engine:
                continue
            # Absolute paths are for readers; a test keeps to its own folder.
            text = re.sub(r"/tmp/pyhudi-[a-z-]+", str(folder), snippet.text)
            if snippet.language == "python":
                exec(compile(text, str(page), "exec"), names)
            else:
                shell.run(text)
    finally:
        events._listeners = listeners
        os.environ.clear()
        os.environ.update(environment)


class Shell:
    """Runs the lines of shell blocks: `pyhudi` in this process where the line is a plain call, the rest by sh."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: dict[str, str] = {}
        programs = folder / "programs"
        programs.mkdir()
        program = programs / "pyhudi"
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m pyhudi "$@"\n')
        program.chmod(0o755)
        path = os.pathsep.join([str(programs), os.environ["PATH"]])
        python_path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        self.environment = {**os.environ, "PATH": path, "PYTHONPATH": python_path}

    def run(self, text: str) -> None:
        pending = ""
        for line in text.splitlines():
            if not pending and line.startswith(("pip install ", "make ")):
                self.check_tool(line.split("#")[0].split())
                continue
            pending += line + "\n"
            here = re.search(r"<<'(\w+)'", pending)
            if line.endswith("\\") or (here and line != here[1]):
                continue
            self.run_line(pending)
            pending = ""
        assert pending == "", f"a line is not finished: {pending!r}"

    def run_line(self, line: str) -> None:
        expected = re.search(r"# exit code (\d)\s*$", line)
        code = int(expected[1]) if expected else 0
        line = re.sub(r"\s+#.*$", "", line.rstrip("\n")) if "<<" not in line else line
        if line.startswith("pyhudi ") and not re.search(r"[|<>;&`]|\$\(", line):
            words = [string.Template(word).substitute(self.names) for word in shlex.split(line)[1:]]
            words = [str(self.made_table()) if word == "TABLE" else word for word in words]
            done = CliRunner().invoke(app, words)
            # Errors of PyHudi reach the runner as code 1, before the program maps them: only success and findings are listed
            # here.
            assert done.exit_code == code, f"{line}: {done.output} {done.exception}"
            return
        assigned = re.match(r"(\w+)=\$\(", line)
        script = f'{line}\nprintf "\\0%s" "${assigned[1]}"' if assigned else line
        environment = {**self.environment, **self.names}
        ran = subprocess.run(
            ["sh", "-ec", script], env=environment, cwd=self.folder, capture_output=True, text=True, timeout=1200
        )
        assert ran.returncode == code, f"{line}: {ran.stdout}{ran.stderr}"
        if assigned:
            self.names[assigned[1]] = ran.stdout.rpartition("\0")[2]

    def made_table(self) -> Path:
        found = sorted(path.parent for path in self.folder.glob("*/.hoodie"))
        if not found:
            hp.Table.create(self.folder / "made", record_key="id")
            return self.folder / "made"
        return found[0]

    def check_tool(self, words: list[str]) -> None:
        """What must be downloaded or takes long is not run: its names must be known to the project."""
        if words[0] == "make":
            targets = re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.M)
            assert set(words[1:]) <= set(targets), words
            return
        for extras in re.findall(r"\[(.*?)\]", words[2]):
            known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
            assert set(extras.split(",")) <= set(known), words

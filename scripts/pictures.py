"""Make the pictures of the docs anew: `python -m scripts.pictures`; the report's needs Playwright and a Chromium.

docs/pictures/terminal.svg   what the command line prints, in colours of a dark terminal; by rich
docs/pictures/report.png     the head of a report
"""

from __future__ import annotations

import os
import pty
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

import pyarrow as pa
from rich.console import Console
from rich.text import Text

import pyhudi as hp
from pyhudi.features.report.page import render_report
from pyhudi.storage.environment import ReplayEnvironment

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
COMMANDS = ("pyhudi show orders", "pyhudi commits orders --limit 5", "pyhudi compact orders")
WIDTH = 108
OPTIONS = {"hoodie.compact.inline": "false"}
DAYS = 14


def main() -> None:
    """Make a table of two weeks, and take its pictures."""
    folder = Path(tempfile.mkdtemp(prefix="pyhudi-pictures-"))
    try:
        table = make_table(folder / "orders")
        picture_report(table, folder)
        picture_terminal(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_table(path: Path) -> hp.Table:
    """Orders of five cities, written daily, with two compactions, a clustering and a savepoint; the same every time."""
    environment = ReplayEnvironment(seed=5, start_ms=1_793_520_000_000)
    dice = random.Random(5)
    table = hp.Table.create(
        path,
        name="orders",
        record_key="id",
        partition_by="city",
        ordering="version",
        table_type="mor",
        environment=environment,
        options=OPTIONS,
    )
    cities = ("amsterdam", "berlin", "chicago", "delhi", "entebbe")
    known = 0
    for day in range(DAYS):
        environment.sleep_ms(20 * 3_600_000 + dice.randrange(8 * 3_600_000))
        fresh = [*range(known, known + 40_000)] if day in (0, 1) else []
        known += len(fresh)
        numbers = fresh + sorted(dice.sample(range(known), 2_000 + dice.randrange(6_000)))
        rows = {
            "id": [f"o{n:06d}" for n in numbers],
            "city": [cities[n % 7 % 5] for n in numbers],
            "amount": [round(dice.uniform(5, 300), 2) for _ in numbers],
            "version": [day] * len(numbers),
        }
        table.bulk_insert(pa.table(rows)) if day == 0 else table.upsert(pa.table(rows))
        if day in (4, 9):
            table.compact()
        if day == 6:
            table.cluster(order_by="amount")
        if day == 10:
            table.savepoint(comments="month end")
    table.schedule_compaction()
    table.upsert(pa.table({"id": ["o000001"], "city": ["berlin"], "amount": [1.0], "version": [DAYS]}))
    return table


def picture_terminal(folder: Path) -> None:
    """What a person sees who types the commands in the folder of the table."""
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w"))  # noqa: SIM115 - as long as the program
    for command in COMMANDS:
        console.print(Text(f"$ {command}", style="bold"))
        console.print(Text.from_ansi(typed(command, folder).replace(f"file:{folder}", "file:/data")))
    svg = console.export_svg(title="pyhudi", unique_id="pyhudi")
    # The font of rich's template lies on a server; readers have one of their own.
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.S).replace("Fira Code", 'ui-monospace, "DejaVu Sans Mono"')
    (PICTURES / "terminal.svg").write_text(svg)


def typed(command: str, folder: Path) -> str:
    """What a command prints on a terminal of WIDTH columns."""
    main_end, program_end = pty.openpty()
    ioctl(program_end, TIOCSWINSZ, struct.pack("HHHH", 50, WIDTH, 0, 0))
    words = [sys.executable, "-m", *command.split()]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(WIDTH)}
    with subprocess.Popen(words, cwd=folder, env=environment, stdout=program_end, stderr=program_end, close_fds=True) as running:
        os.close(program_end)
        parts = []
        while True:
            try:
                part = os.read(main_end, 1 << 16)
            except OSError:
                break  # the program has ended
            if not part:
                break
            parts.append(part)
        running.wait()
    os.close(main_end)
    return b"".join(parts).decode().replace("\r\n", "\n").rstrip("\n") + "\n"


def picture_report(table: hp.Table, folder: Path) -> None:
    """The first screen of the report, light."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("no picture of the report: it needs Playwright (scripts/setup.sh python --group browser)")
        return
    page = render_report(table).replace(f"file:{folder}", "file:/data")
    (folder / "report.html").write_text(page, encoding="utf-8")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        view = browser.new_page(viewport={"width": 1040, "height": 1000}, color_scheme="light")
        view.goto((folder / "report.html").as_uri())
        view.screenshot(path=str(PICTURES / "report.png"))
        browser.close()


if __name__ == "__main__":
    main()

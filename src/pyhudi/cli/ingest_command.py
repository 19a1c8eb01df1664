"""`pyhudi ingest`: run an ingestion job."""

from __future__ import annotations

import logging
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from pyhudi import features
from pyhudi.cli.output import print_text

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(ingest)


def ingest(
    config: Annotated[Path, typer.Option("--config", "-c", metavar="FILE", help="The job: a TOML file.")],
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Log warnings and errors only, not the progress.")] = False,
) -> None:
    """Ingest new rows of files, tables, databases or topics; stops after the current batch on SIGTERM."""
    job = features.load("ingestion", "pyhudi ingest").Ingest(config)
    log = logging.getLogger("pyhudi.ingestion")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    before = {number: signal.signal(number, lambda *_: job.stop()) for number in _SIGNALS}
    log.addHandler(handler)
    log.setLevel(logging.WARNING if quiet else logging.INFO)
    try:
        results = job.run()
    finally:
        log.removeHandler(handler)
        for number, previous in before.items():
            signal.signal(number, previous)
    for result in results:
        print_text(str(result))

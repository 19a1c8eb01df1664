"""`pyhudi ingest`: output, exit codes and a stop by signal."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pyhudi import Table
from pyhudi.cli.app import app
from pyhudi.errors import InvalidRequest
from tests.support.ingestion import checkpoints, write_lines


def job_file(tmp_path: Path, head: str = "", source: str = "") -> Path:
    file = tmp_path / "job.toml"
    given = source or f'{{ kind = "files", path = "{tmp_path}/in" }}'
    file.write_text(f'{head}\n[[table]]\npath = "{tmp_path}/t"\nrecord_key = "id"\nsource = {given}\n')
    return file


def test_a_job_runs_once_and_reports_what_it_did(tmp_path: Path) -> None:
    write_lines(tmp_path / "in/a.json", [{"id": 1}, {"id": 2}], 1_767_225_600_000)
    done = CliRunner().invoke(app, ["ingest", "--config", str(job_file(tmp_path)), "--quiet"])
    assert done.exit_code == 0, done.output
    assert f"{tmp_path}/t: 2 rows in 1 commits, 0 bad rows, checkpoint 1767225600000" in done.output
    assert Table(tmp_path / "t").count() == 2


def test_a_bad_job_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["ingest", "--config", str(job_file(tmp_path, "continuous = 2"))])
    assert isinstance(done.exception, InvalidRequest)
    assert "for continuous: pass true or false" in str(done.exception)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_ends_a_continuous_job_after_its_batch(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch that is being read when the signal comes is committed."""
    write_lines(tmp_path / "in/a.json", [{"id": 1}], 1_767_225_600_000)
    (tmp_path / "signalling.py").write_text(
        f"import os, signal\n\ndef at_once(rows):\n    os.kill(os.getpid(), signal.{name})\n    return rows\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    file = job_file(tmp_path, "continuous = true")
    file.write_text(file.read_text() + 'transforms = [{ function = "signalling:at_once" }]\n')
    before = signal.getsignal(getattr(signal, name))
    done = CliRunner().invoke(app, ["ingest", "-c", str(file)])
    assert done.exit_code == 0, done.output
    assert checkpoints(Table(tmp_path / "t")) == ["1767225600000"]
    assert signal.getsignal(getattr(signal, name)) is before
    monkeypatch.delitem(sys.modules, "signalling")

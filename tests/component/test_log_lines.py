"""Log lines and files next to an output: texts of a table and links of others have no effect on them."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

import pyhudi as hp
from pyhudi.cli.app import app
from pyhudi.errors import InvalidRequest, get_logger


def test_log_messages_are_one_line_without_control_characters(caplog: pytest.LogCaptureFixture) -> None:
    logger = get_logger("pyhudi.operations")
    assert get_logger("pyhudi.operations") is logger
    with caplog.at_level(logging.INFO, logger="pyhudi"):
        logger.info("%s of %s: %s", "upsert", "a\n2026-01-01 ERROR forged\x1b[2J", InvalidRequest("two\nlines"))
    assert caplog.messages == ["upsert of a\\n2026-01-01 ERROR forged\\x1b[2J: two\\nlines"]


def test_every_logger_of_the_package_escapes_its_messages() -> None:
    sources = Path(hp.__file__).parent.rglob("*.py")
    direct = {path.name for path in sources if "= logging.getLogger(" in path.read_text()}
    assert direct == {"errors.py", "ingest_command.py"}


def test_export_does_not_write_through_a_link_that_others_made(tmp_path: Path) -> None:
    table, private = tmp_path / "t", tmp_path / "private"
    hp.Table.create(table, record_key="id").insert({"id": [1]})
    private.write_text("private")
    os.symlink(private, tmp_path / "rows.csv.unfinished")
    result = CliRunner().invoke(app, ["export", str(table), str(tmp_path / "rows.csv")])
    assert result.exit_code == 0, result.output
    assert private.read_text() == "private"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["private", "rows.csv", "rows.csv.unfinished", "t"]

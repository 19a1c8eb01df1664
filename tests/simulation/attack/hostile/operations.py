"""Operations on a table that a hostile party has written, and what their results may not contain."""

from __future__ import annotations

import logging
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from typer.testing import CliRunner

from pyhudi import Table
from pyhudi.cli.app import app
from pyhudi.errors import HudiError
from pyhudi.storage.environment import ReplayEnvironment
from tests.simulation.attack.hostile.payloads import CONTROL, MARKUP
from tests.simulation.attack.hostile.subjects import NOW_MS, SECRET, rows

LINKS_REFUSED = {"link_roots": ""}
_SCRIPT = MARKUP[MARKUP.index("<script") :][:16]
_CONTROLS = [letter for letter in CONTROL if not letter.isprintable()]


class Revealed(Exception):
    """An operation has printed what it must not."""


class OtherRows(Exception):
    """An operation has returned rows of another table."""


def opened(path: str, storage_options: Mapping[str, str], options: Mapping[str, object]) -> Table:
    return Table(
        path,
        storage_options=storage_options,
        options={"pyhudi.threads": 1, **options},
        environment=ReplayEnvironment(11, NOW_MS),
    )


def _open(table: Table) -> None:
    str(table.schema)
    repr(table)
    str(table.config)
    table.timeline()
    table.partitions()
    table.tags()
    table.index.list()


def _count(table: Table) -> None:
    table.count()


def _scan(table: Table) -> None:
    found = table.scan(filter="v >= 3 and note = 'inside' and city = 'rome'").to_arrow()
    _check_rows(found.to_pylist())
    _check_rows(table.scan().to_arrow().to_pylist())


def _history(table: Table) -> None:
    _check_rows(table.incremental("000").to_arrow().to_pylist())
    instants = table.timeline().completed_writes()
    if instants:
        _check_rows(table.scan(as_of=instants[0].request_time).to_arrow().to_pylist())


def _inspect(table: Table) -> None:
    inspection = table.inspect
    for method in ("timeline", "commits", "files", "file_slices", "partitions", "sizes", "column_stats", "markers", "locks"):
        try:
            _check_rows(getattr(inspection, method)().to_pylist())
        except HudiError:
            continue


def _check_rows(found: list[dict[str, object]]) -> None:
    if SECRET in str(found):
        raise OtherRows("rows of another table are returned")


def _upsert(table: Table) -> None:
    table.upsert(rows(range(3, 6), 900, "inside"))


def _delete(table: Table) -> None:
    table.delete(where="v = 12 or id = 'k001'")


def _compact(table: Table) -> None:
    if table.config.table_type.value.upper().startswith("MERGE"):
        table.compact(options={"hoodie.compact.inline.max.delta.commits": 1})
    else:
        table.cluster()


def _clean(table: Table) -> None:
    table.clean(options={"hoodie.clean.commits.retained": 1})


def _archive(table: Table) -> None:
    table.archive(options={"hoodie.clean.commits.retained": 1, "hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3})


def _validate(table: Table) -> None:
    table.validate(keys=True, checksums="all")


def _repair(table: Table) -> None:
    table.repair(accept_loss=True)


def _restore(table: Table) -> None:
    tags = table.tags()
    table.restore(next(iter(tags.values()), "20260101000000000"))


def _rollback(table: Table) -> None:
    table.rollback(table.timeline().completed_writes()[-1].request_time)


def _run_services(table: Table) -> None:
    table.run_services()


def _drop(table: Table) -> None:
    table.drop()


def _drop_index(table: Table) -> None:
    for info in table.index.list():
        table.index.drop(info.name)


OPERATIONS: dict[str, Callable[[Table], None]] = {
    "open": _open,
    "count": _count,
    "scan": _scan,
    "history": _history,
    "inspect": _inspect,
    "upsert": _upsert,
    "delete": _delete,
    "compact": _compact,
    "clean": _clean,
    "archive": _archive,
    "validate": _validate,
    "repair": _repair,
    "restore": _restore,
    "rollback": _rollback,
    "services": _run_services,
    "drop": _drop,
    "drop index": _drop_index,
}
"""Operations of the Python API."""

COMMANDS: dict[str, tuple[str, ...]] = {
    "report": ("report", "{table}", "--to", "{scratch}/report.html"),
    "command show": ("show", "{table}"),
    "command timeline": ("timeline", "{table}"),
    "command commits": ("commits", "{table}"),
    "command schema": ("schema", "{table}"),
    "command head": ("head", "{table}"),
    "command files": ("files", "{table}"),
    "command slices": ("slices", "{table}"),
    "command partitions": ("partitions", "{table}"),
    "command stats": ("stats", "{table}"),
    "command markers": ("markers", "{table}"),
    "command explain": ("explain", "{table}"),
    "command validate": ("validate", "{table}"),
    "command repair": ("repair", "{table}"),
    "command index": ("index", "list", "{table}"),
}
"""Commands of the command line."""

FOLLOWING: Mapping[str, tuple[str, ...]] = {
    "cow dead write": ("upsert", "repair", "clean", "command markers", "inspect"),
    "cow clustering": ("compact", "services", "upsert"),
    "cow rollback": ("upsert", "clean", "rollback", "repair"),
    "mor marker list": ("upsert", "repair", "command markers", "inspect"),
    "mor compaction": ("compact", "services", "upsert"),
    "mor clean": ("clean", "services", "upsert"),
    "mor restore": ("restore", "upsert", "scan"),
    "mor index build": ("services", "upsert", "drop index"),
}
"""Operations that carry out what a state has pending."""


def run(operation: str, table: Path, scratch: Path, storage_options: Mapping[str, str], options: Mapping[str, object]) -> str:
    """Run an operation. Returns `done` or the name of a HudiError; anything else propagates."""
    with warnings.catch_warnings(record=True) as warned, _logged() as lines:
        warnings.simplefilter("always")
        try:
            if operation in OPERATIONS:
                OPERATIONS[operation](opened(str(table), storage_options, options))
                result = "done"
            else:
                result = _command(operation, table, scratch)
        except HudiError as error:
            _check_text(str(error))
            result = type(error).__name__
    for warning in warned:
        _check_text(str(warning.message))
    for line in lines:
        _check_text(line)
        if "\n" in line:
            raise Revealed(f"several lines in the log: {line!r}")
    return result


@contextmanager
def _logged() -> Iterator[list[str]]:
    """The messages that PyHudi logs."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("pyhudi")
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)


def _command(operation: str, table: Path, scratch: Path) -> str:
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    arguments = [part.format(table=table, scratch=scratch) for part in COMMANDS[operation]]
    result = CliRunner().invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    _check_text(result.output)
    if SECRET in result.output:
        raise OtherRows("rows of another table are printed")
    page = scratch / "report.html"
    if page.exists():
        text = page.read_text()
        if _SCRIPT in text:
            raise Revealed("the report holds a script of the table")
    return f"exit code {result.exit_code}"


def _check_text(text: str) -> None:
    for control in _CONTROLS:
        if control in text:
            raise Revealed(f"control character {control!r} in {text[max(0, text.index(control) - 150) :][:300]!r}")

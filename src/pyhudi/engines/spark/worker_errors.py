"""Transfer PyHudi's errors from a Spark worker to the driver, including their fields.

Spark returns only the text of a worker's traceback. So a worker adds a note with the error's fields, as JSON on one
line, and the driver re-creates the error from it. JSON instead of pickle, because the text of an exception may contain
rows of a table.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pyarrow as pa

from pyhudi import errors
from pyhudi.errors import HudiError
from pyhudi.records.vectors import in_spark_layout

_NOTE = "pyhudi-error: "
_PLAIN = (str, int, float, bool, type(None))

S = TypeVar("S")
Batches = Iterator[pa.RecordBatch]


def with_error_fields(run: Callable[[S, Batches], Batches]) -> Callable[[S, Batches], Batches]:
    """Decorator for the `__call__` of a job: adds the fields of its errors for the driver.

    The batches get Spark's layout.
    """

    @functools.wraps(run)
    def reported(self: S, batches: Batches) -> Batches:
        try:
            yield from map(in_spark_layout, run(self, batches))
        except HudiError as error:
            error.add_note(format_error(error))
            raise

    return reported


def format_error(error: HudiError) -> str:
    """The note: one line."""
    state = {key: value for key, value in error.__dict__.items() if not key.startswith("_")}
    fields = {"kind": type(error).__name__, "args": error.args, "state": state}
    return _NOTE + json.dumps(fields, default=str)


def parse_error(text: str) -> HudiError | None:
    """The error of the last complete note in a text; None if there is none."""
    for note in reversed(re.findall(rf"{_NOTE}(\{{.*\}})", text)):
        try:
            fields = json.loads(note)
            kind = getattr(errors, fields["kind"])
            args, state = tuple(fields["args"]), dict(fields["state"])
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        if isinstance(kind, type) and issubclass(kind, HudiError) and all(isinstance(argument, _PLAIN) for argument in args):
            error = kind.__new__(kind)
            error.args = args
            error.__dict__.update({key: _frozen(value) for key, value in state.items()})
            return error
    return None


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value

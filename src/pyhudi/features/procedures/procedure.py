"""What a procedure is, and how its arguments are checked.

A procedure has the name, the arguments and the columns of real Hudi's `CALL` statement.  Every one that works on a table takes
`path` in place of `table`, also where real Hudi only knows tables of the catalog.  An argument that a procedure does not have is
refused, where real Hudi ignores it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from pyhudi.api.table import Table
from pyhudi.errors import Internal, InvalidRequest
from pyhudi.format.properties import redact_secret

Value = str | int | bool | None
Rows = Iterable[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument.  kind: str, int or bool; default: what stands for it when it is left out, None for nothing."""

    name: str
    kind: type[str] | type[int] | type[bool] = str
    default: Value = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class ProcedureCall:
    """One call.

    path, storage_options: where the table lies; opened: it, None of a procedure that makes it.  arguments: every parameter of the
    procedure, with its default where it was not given.
    """

    path: str
    storage_options: Mapping[str, str] | None = field(repr=False)
    opened: Table | None
    arguments: Mapping[str, Value]
    spark: Any = None

    @property
    def table(self) -> Table:
        """The table."""
        if self.opened is None:
            raise Internal("a procedure that makes a table has none to work on")
        return self.opened

    def text(self, name: str) -> str:
        """A text, '' when it was left out."""
        value = self.arguments[name]
        return "" if value is None else str(value)

    def number(self, name: str) -> int:
        """A number that has a default."""
        value = self.arguments[name]
        assert isinstance(value, int)
        return value

    def flag(self, name: str) -> bool:
        """A switch that has a default."""
        return bool(self.arguments[name])

    def options(self, **from_arguments: str) -> dict[str, Value]:
        """The `hoodie.` options of the call: those in its `options` text (`key=value,key=value`), and of the arguments that were
        given those named, argument -> option.  Raises InvalidRequest for a text without `=` and for two values of one option.
        """
        found: dict[str, Value] = {}
        for number, pair in enumerate(filter(None, (part.strip() for part in self.text("options").split(","))), 1):
            key, separator, value = pair.partition("=")
            if not separator:
                # What stands there may be a secret.
                raise InvalidRequest(f"part {number} of options is not key=value")
            found[key.strip()] = value.strip()
        for argument, option in from_arguments.items():
            chosen = self.arguments[argument]
            if chosen is None:
                continue
            if str(found.get(option, chosen)) != str(chosen):
                raise InvalidRequest(
                    f"{argument}={chosen} and {option}={redact_secret(option, str(found[option]))} in options disagree"
                )
            found[option] = chosen
        return found


@dataclass(frozen=True, slots=True)
class Procedure:
    """parameters: without `table` and `path`, which all have.  output: the columns of the answer.  creates_table: there is
    none.
    """

    name: str
    parameters: tuple[Parameter, ...]
    output: pa.Schema
    run: Callable[[ProcedureCall], Rows]
    summary: str
    creates_table: bool = False

    @property
    def is_read_only(self) -> bool:
        """Whether the procedure may be run again: by their names, these are the ones that show something."""
        return self.name.startswith("show_")

    def check(self, arguments: Mapping[str, object]) -> dict[str, Value]:
        """The arguments of a call with their types and defaults.

        Texts stand for numbers and switches too.  Raises InvalidRequest for a missing, an unknown and a wrong one.
        """
        known = {parameter.name: parameter for parameter in self.parameters}
        for name in arguments:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f"; did you mean {near[0]}?" if near else f"; it takes {', '.join(['path', *known])}"
                raise InvalidRequest(f"procedure {self.name} has no argument {name!r}{hint}")
        for parameter in self.parameters:
            if parameter.required and arguments.get(parameter.name) is None:
                raise InvalidRequest(f"procedure {self.name} needs the argument {parameter.name!r}")
        return {name: _typed(self.name, parameter, arguments.get(name)) for name, parameter in known.items()}


def schema(text: str) -> pa.Schema:
    """Columns from `name type, ...`; types: string, int, bigint, double, boolean, as Spark names them."""
    pairs = (part.rsplit(" ", 1) for part in text.split(", "))
    return pa.schema([pa.field(name.strip(), _TYPES[kind.strip()]) for name, kind in pairs])


_TYPES = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "double": pa.float64(), "boolean": pa.bool_()}
_FLAGS = {"true": True, "false": False}


def _typed(procedure: str, parameter: Parameter, value: object) -> Value:
    if value is None:
        return parameter.default
    if parameter.kind is bool:
        flag = value if isinstance(value, bool) else _FLAGS.get(str(value).strip().lower())
        if flag is None:
            raise InvalidRequest(f"argument {parameter.name} of {procedure} is true or false, not {value!r}")
        return flag
    if parameter.kind is int:
        try:
            return int(str(value))
        except ValueError:
            raise InvalidRequest(f"argument {parameter.name} of {procedure} is a whole number, not {value!r}") from None
    return str(value)

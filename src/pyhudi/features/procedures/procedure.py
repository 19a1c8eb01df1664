"""Declaration of procedures, and validation of their arguments.

    @procedure("limit int = 10, instant_time string required", "action string, partition_path string, file_size bigint")
    def show_commit_files(call: ProcedureCall) -> Rows:
        ...

A procedure has the name, the arguments and the columns of Hudi's `CALL` statement. The function returns rows as tuples
in the order of the columns, and its docstring is what `help` shows. Every procedure on a table takes `path` in place of
`table`, also where Hudi only accepts tables of the catalog. An unknown argument is rejected; Hudi ignores it.

The parameters have the order of Hudi 1.0.2, which decides what arguments by position mean. `table` and `path` without a
type mark the positions of the table; `table` is first where neither is named.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from inspect import getdoc
from itertools import islice
from types import ModuleType
from typing import Any

import pyarrow as pa

from pyhudi.api.table import Table
from pyhudi.errors import Internal, InvalidRequest
from pyhudi.format.properties import redact_secret, split_list
from pyhudi.operations.commit.check_writable import check_writable
from pyhudi.table.table_context import TableContext

Value = str | int | bool | None
Rows = Iterable[tuple[Any, ...]]

LOCATING = ("table", "path")
"""Arguments that name the table."""

_LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a procedure.

    Attributes:
        name: Name of the parameter.
        kind: str, int or bool.
        default: Default value; None for no value.
        required: True if the argument must be passed.
    """

    name: str
    kind: type[str] | type[int] | type[bool] = str
    default: Value = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class ProcedureCall:
    """One call of a procedure.

    Attributes:
        path: Location of the table.
        storage_options: Credentials and settings of the object store.
        opened: The table; None for a procedure that creates it.
        arguments: Values of all parameters, including defaults.
        spark: Session that runs tasks; None for this process.
        session_options: Options of the session, which the table has already.
        name: Name of the table in the call; None if it has the path.
    """

    path: str
    storage_options: Mapping[str, str] | None = field(repr=False)
    opened: Table | None
    arguments: Mapping[str, Value]
    spark: Any = None
    session_options: Mapping[str, object] | None = None
    name: str | None = None

    @property
    def label(self) -> str:
        """The table as the caller names it: its name, or its path."""
        return self.path if self.name is None else self.name

    @property
    def table(self) -> Table:
        """The table that the procedure is called on. Raises Internal for a procedure that creates one."""
        if self.opened is None:
            raise Internal("a procedure that creates a table has no table to work on")
        return self.opened

    def writable_context(self) -> TableContext:
        """The table with its current properties.  Raises Unsupported if this version must not write it."""
        context = self.table.context.reloaded()
        check_writable(context, retains_indexes=False)
        return context

    def text(self, name: str) -> str:
        """A text argument; '' if it was not passed."""
        value = self.arguments[name]
        return "" if value is None else str(value)

    def number(self, name: str) -> int:
        """A numeric argument with a default."""
        value = self.arguments[name]
        assert isinstance(value, int)
        return value

    def names(self, name: str) -> tuple[str, ...]:
        """The parts of a text argument with commas between them; () if it was not passed."""
        return split_list(self.text(name))

    def flag(self, name: str) -> bool:
        """A boolean argument with a default."""
        return bool(self.arguments[name])

    def options(self, **from_arguments: str) -> dict[str, Value]:
        """The `hoodie.*` options of the call, from its `options` text (`key=value,key=value`) and from arguments.

        Args:
            from_arguments: Option name by argument name, for arguments that set an option.

        Raises:
            InvalidRequest: A part of the text has no `=`, or an option has two different values.
        """
        options: dict[str, Value] = {}
        for number, pair in enumerate(filter(None, (part.strip() for part in self.text("options").split(","))), 1):
            key, separator, value = pair.partition("=")
            if not separator:
                # The text can be a secret, so it is not shown.
                raise InvalidRequest(f"part {number} of options is not key=value")
            options[key.strip()] = value.strip()
        for argument, option in from_arguments.items():
            chosen = self.arguments[argument]
            if chosen is None:
                continue
            if str(options.get(option, chosen)) != str(chosen):
                raise InvalidRequest(
                    f"{argument}={chosen} and {option}={redact_secret(option, str(options[option]))} in options disagree"
                )
            options[option] = chosen
        return options


@dataclass(frozen=True, slots=True)
class Procedure:
    """A stored procedure.

    Attributes:
        function: Implementation. Its name is that of the procedure.
        parameters: Parameters, without `table` and `path`, which all procedures have.
        output: Schema of the result.
        creates_table: True if the procedure creates the table.
        positions: Names of the arguments by position, `table` and `path` among them.
    """

    function: Callable[[ProcedureCall], Rows]
    parameters: tuple[Parameter, ...]
    output: pa.Schema
    creates_table: bool = False
    positions: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the procedure."""
        return self.function.__name__

    @property
    def summary(self) -> str:
        """Description in one paragraph."""
        return " ".join((getdoc(self.function) or "").split("\n\n")[0].split())

    @property
    def is_read_only(self) -> bool:
        """True if the procedure can be run again: by naming convention, those that show something."""
        return self.name.startswith(("show_", "stats_"))

    def run(self, call: ProcedureCall) -> pa.Table:
        """Run the procedure. The argument `limit` of one that shows something is the largest number of rows.

        Raises:
            InvalidRequest: The limit is negative. Errors of the procedure are raised as they are.
        """
        rows = self.function(call)
        if self.is_read_only and _LIMIT in call.arguments:
            limit = call.number(_LIMIT)
            if limit < 0:
                raise InvalidRequest(f"limit={limit} of {self.name} is negative: pass the number of rows to show")
            # One row is always computed, so that the other arguments are checked.
            rows = list(islice(rows, max(limit, 1)))[:limit]
        names = self.output.names
        return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=self.output)

    def check(self, arguments: Mapping[str, object]) -> dict[str, Value]:
        """Validate the arguments of a call, and add defaults.

        Texts are converted to numbers and booleans. Raises InvalidRequest for missing, unknown and invalid arguments.
        """
        known = {parameter.name: parameter for parameter in self.parameters}
        for name in arguments:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f"; did you mean {near[0]}?" if near else f"; it takes {', '.join(['path', *known])}"
                raise InvalidRequest(f"procedure {self.name} has no argument {name!r}{hint}")
        for parameter in self.parameters:
            if parameter.required and arguments.get(parameter.name) is None:
                raise InvalidRequest(f"procedure {self.name} requires the argument {parameter.name!r}")
        return {name: _typed(self.name, parameter, arguments.get(name)) for name, parameter in known.items()}


def procedure(
    parameters: str, columns: str, *, creates_table: bool = False
) -> Callable[[Callable[[ProcedureCall], Rows]], Procedure]:
    """Declare a function as a procedure.

    Args:
        parameters: Parameters as `name type [required | = default], ...`, without quotes around texts; `table` and `path`
            at their positions.
        columns: Columns of the result as `name type, ...`.
        creates_table: True if the procedure creates the table.

    Returns:
        A decorator, which replaces the function by the procedure.
    """
    texts = [text for text in parameters.split(", ") if text]
    parsed = tuple(_parameter(text) for text in texts if text not in LOCATING)
    positions = tuple(text.split()[0] for text in texts)
    if not positions or not set(positions[:2]) & set(LOCATING):
        positions = ("table", *positions)
    output = schema(columns)
    return lambda function: Procedure(function, parsed, output, creates_table, positions)


def procedures_in(*modules: ModuleType) -> dict[str, Procedure]:
    """Return the procedures that modules declare, by name."""
    declared = (value for module in modules for value in vars(module).values() if isinstance(value, Procedure))
    return {procedure.name: procedure for procedure in declared}


def schema(text: str) -> pa.Schema:
    """Parse a schema `name type, ...`, with Spark's type names: string, int, bigint, double, boolean."""
    pairs = (part.rsplit(" ", 1) for part in text.split(", "))
    return pa.schema([pa.field(name.strip(), _TYPES[type_name.strip()]) for name, type_name in pairs])


def _parameter(text: str) -> Parameter:
    declaration, has_default, default = text.partition(" =")
    name, type_name, *required = declaration.split()
    parameter = Parameter(name, _PARAMETER_TYPES[type_name], required=required == ["required"])
    return replace(parameter, default=_typed(name, parameter, default.strip())) if has_default else parameter


_PARAMETER_TYPES: Mapping[str, type[str] | type[int] | type[bool]] = {"string": str, "int": int, "boolean": bool}
_TYPES = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "double": pa.float64(), "boolean": pa.bool_()}
_FLAGS = {"true": True, "false": False}


def _typed(procedure: str, parameter: Parameter, value: object) -> Value:
    if value is None:
        return parameter.default
    if parameter.kind is bool:
        flag = value if isinstance(value, bool) else _FLAGS.get(str(value).strip().lower())
        if flag is None:
            raise InvalidRequest(f"argument {parameter.name} of {procedure} must be true or false, not {value!r}")
        return flag
    if parameter.kind is int:
        try:
            return int(str(value))
        except ValueError:
            raise InvalidRequest(f"argument {parameter.name} of {procedure} must be an integer, not {value!r}") from None
    return str(value)

"""Arguments of wrong types: every public function answers with one of our errors."""

from __future__ import annotations

import inspect
import itertools
import threading
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.api import argument_types
from pyhudi.errors import HudiError, InstantNotFound, InvalidRequest
from pyhudi.features import procedures

WRONG: tuple[Any, ...] = (
    5,
    1.5,
    True,
    "no such thing",
    b"bytes",
    [1],
    {"a": 1},
    {1: "a"},
    object(),
    pa.int32(),
    datetime(2020, 1, 1),
)
ROWS = {"id": [1, 2], "ts": [10, 10], "fare": [7.5, 12.0]}
_numbers = itertools.count()

VALUES: dict[str, Any] = {
    "axes": None,
    "column": "fare",
    "columns": ["id"],
    "data": ROWS,
    "df": ROWS,
    "instant": "20200101000000000",
    "keys": [1],
    "index_type": "record_index",
    "module": "json",
    "name": "fare",
    "on": "id",
    "operation": "upsert",
    "partitions": "a",
    "path": "memory://no-table",
    "procedure": "show_commits",
    "properties": {"owner": "a"},
    "set": {"fare": 1.0},
    "source": ROWS,
    "start": "earliest",
    "statement": "SELECT 1",
    "tag": "a",
    "text": "a",
    "type": "int",
    "uri": "memory://no-table",
    "values": {"id": 3},
}
"""Sound values of required arguments."""

EXCLUDED = {"background", "background_services", "exclusive", "load_plugin"}
"""Methods that start threads or return a context, and the import of a module named by the caller."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def fresh() -> hp.Table:
    table = hp.Table.create(
        f"memory://argument-kinds-{next(_numbers)}/t", record_key="id", ordering="ts", options={"pyhudi.threads": 1}
    )
    table.upsert(ROWS)
    return table


def untyped(function: Any) -> Any:
    """The function without its signature, for calls that a type checker refuses."""
    return function


def owners(table: Callable[[], hp.Table] = fresh) -> dict[str, Callable[[], Any]]:
    """Objects with public methods."""
    return {
        "Table": table,
        "scan": lambda: table().scan(),
        "split": lambda: table().scan().splits()[0],
        "merge": lambda: table().merge(ROWS, on="id"),
        "index": lambda: table().index,
        "alter": lambda: table().alter,
        "inspect": lambda: table().inspect,
        "catalog": hp.Catalog,
    }


def methods() -> list[tuple[str, str]]:
    found = []
    shared = fresh()
    for owner, make in owners(lambda: shared).items():
        kind = type(make())
        for name in dir(kind):
            member = inspect.getattr_static(kind, name)
            if (
                not name.startswith("_")
                and name not in EXCLUDED
                and (inspect.isfunction(member) or isinstance(member, classmethod))
            ):
                found.append((owner, name))
    return found


def functions() -> list[str]:
    """Functions of the module that need no Spark session."""
    return [name for name in hp.__all__ if inspect.isfunction(getattr(hp, name)) and name not in EXCLUDED]


def call_with_wrong_types(function: Callable[[], Callable[..., Any]], **extra: Any) -> None:
    """Call a function once for each argument and wrong value; the other arguments are sound."""
    parameters = inspect.signature(function()).parameters
    required = {name: VALUES.get(name, "a") for name, one in parameters.items() if one.default is one.empty} | extra
    for name, parameter in parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or name in extra:
            continue
        for value in WRONG:
            arguments = {**required, name: value}
            positional = [arguments.pop(one.name) for one in parameters.values() if one.kind is one.POSITIONAL_ONLY]
            try:
                result = function()(*positional, **arguments)
                if isinstance(result, Iterator):
                    next(result, None)
            except HudiError:
                pass
            except Exception as error:
                pytest.fail(f"{name}={value!r}: {type(error).__name__}: {error}")


@pytest.mark.sample(36)
@pytest.mark.parametrize(("owner", "name"), methods())
def test_methods_refuse_wrong_types(owner: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stop = threading.Event()
    stop.set()
    extra = {"stop": stop} if name == "serve" else {}
    target = owners()[owner]()
    call_with_wrong_types(lambda: getattr(target, name), **extra)


@pytest.mark.parametrize("name", functions())
def test_functions_refuse_wrong_types(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call_with_wrong_types(lambda: getattr(hp, name))


def test_the_constructor_refuses_wrong_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call_with_wrong_types(lambda: hp.Table)
    call_with_wrong_types(lambda: procedures.call)


def test_functions_on_spark_refuse_wrong_types() -> None:
    hs = pytest.importorskip("pyhudi.spark")
    for name in hs.__all__:
        function = getattr(hs, name)
        if not inspect.isfunction(function):
            continue
        for parameter in inspect.signature(function).parameters.values():
            kinds = argument_types._accepted_types(parameter.annotation)
            if kinds and parameter.kind is not parameter.VAR_KEYWORD:
                assert not any(kind.accepts(5) for kind in kinds), (name, parameter.name)
    with pytest.raises(InvalidRequest, match=r"read: spark=5 .int. is of the wrong type; pass a Spark SparkSession"):
        hs.read(5, "/data/trips")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.upsert(ROWS, option={}), r"Table.upsert\(\) has no argument option=: did you mean options=\?"),
        (lambda t: t.upsert(), r"Table.upsert\(\): missing a required argument: 'data'"),
        (lambda t: untyped(hp.Table)(t.uri, version=1), r"Table\(\) has no argument version=: pass as_of="),
        (lambda t: untyped(hp.Table)(t.uri, options="a=b"), r"options='a=b' \(str\) is of the wrong type; pass a dictionary"),
        (lambda t: untyped(hp.Table)(t.uri, {"key": 5}), r"storage_options= is a dictionary \{'key': int\}"),
        (lambda t: untyped(hp.Table.create)("memory://x/t", record_key=5), r"Table.create: record_key=5 \(int\)"),
        (lambda t: t.alter.add("n", 5), "pass a pa.DataType or text"),
        (lambda t: t.scan(5), "pass text or a list of text or None"),
    ],
)
def test_messages_name_the_argument(call: Callable[[hp.Table], object], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        call(fresh())


def test_results_and_times_name_instants() -> None:
    table = fresh()
    first = table.upsert({"id": [3], "ts": [1], "fare": [1.0]})
    second = table.upsert({"id": [4], "ts": [1], "fare": [1.0]})
    assert table.scan(as_of=first).count() == 3
    assert table.incremental(after=first).count() == 1
    assert table.incremental(second).count() == 1
    savepoint = table.savepoint(first)
    assert savepoint.instant == first.instant
    table.delete_savepoint(savepoint)
    table.rollback(second)
    assert table.scan().count() == 3
    with pytest.raises(InvalidRequest, match="names no instant: nothing was committed"):
        table.restore(table.delete([99]) if table.delete([99]).instant is None else hp.WriteResult("upsert", None, None))
    table.restore(datetime.now(UTC))
    with pytest.raises(InstantNotFound, match="has no completed write at or before 2001"):
        table.restore(datetime(2001, 1, 1, tzinfo=UTC))


def test_types_of_sql_add_and_widen_columns() -> None:
    table = fresh()
    table.alter.add("tip", "int")
    table.alter.retype("tip", "BIGINT")
    table.alter.add("stops", "array<string>")
    assert table.schema().field("tip").type == pa.int64()
    assert pa.types.is_list(table.schema().field("stops").type)
    with pytest.raises(InvalidRequest, match="expected a type, found flot"):
        table.alter.add("x", "flot")

"""Writes that change the table's columns, or meet a writer that does, are planned again on the new columns."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pyarrow as pa
import pytest

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import InvalidRequest, WriteConflict
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.table.table_context import TableContext
from tests.simulation.overlapping import GROUPS, OPTIONS, begin, rows
from tests.simulation.tables import World

KEYS = GROUPS["a"][0]
EVOLVE = {"pyhudi.schema.mode": "evolve", "hoodie.write.set.null.for.missing.columns": True}
Change = Callable[[World, list[str], int], pa.Table]


def narrow(world: World, keys: list[str], value: int) -> pa.Table:
    return rows(world, keys, "a", value).append_column("small", pa.array([2] * len(keys), pa.int32()))


def wide(world: World, keys: list[str], value: int) -> pa.Table:
    return rows(world, keys, "a", value).append_column("small", pa.array([2**40] * len(keys)))


def real(world: World, keys: list[str], value: int) -> pa.Table:
    return rows(world, keys, "a", value).append_column("small", pa.array([2.5] * len(keys)))


def text(world: World, keys: list[str], value: int) -> pa.Table:
    return rows(world, keys, "a", value).append_column("small", pa.array(["two"] * len(keys)))


def more(world: World, keys: list[str], value: int) -> pa.Table:
    return narrow(world, keys, value).append_column("more", pa.array([3] * len(keys)))


def other(world: World, keys: list[str], value: int) -> pa.Table:
    return narrow(world, keys, value).append_column("other", pa.array(["o"] * len(keys)))


@cache
def _world_with_commits(kind: str, options: tuple[tuple[str, object], ...]) -> World:
    world = World(kind, {**OPTIONS, **EVOLVE, **dict(options)})
    world.table.bulk_insert(narrow(world, [*KEYS, "k4"], 1))
    return world


def write(world: World, operation: WriteOperation, data: object, **options: object) -> Callable[[TableContext], object]:
    settings = WriteSettings.of(parse_options({**world.options, **options}), operation)
    return lambda context: run_write(context, LocalEngine(1), data, settings)


def world_with_commits(kind: str, **options: object) -> World:
    return _world_with_commits(kind, tuple(sorted(options.items()))).copy()


def found(world: World) -> dict[str, dict[str, object]]:
    return {row["id"]: row for row in world.table.scan().to_arrow().to_pylist()}


MEETINGS = [(narrow, wide), (narrow, more), (wide, more), (more, other), (wide, real), (more, text), (text, wide), (wide, text)]


@pytest.mark.sample(8)
@pytest.mark.parametrize(("own", "others"), MEETINGS)
@pytest.mark.parametrize(("kind", "budget"), [("cow", 1 << 30), ("mor", 1)])
def test_another_writer_changes_columns_of_the_same_rows(kind: str, own: Change, others: Change, budget: int) -> None:
    """The outcome is that of one write after the other; with a budget of one byte the rows lie on disk."""
    world = world_with_commits(kind)
    expected = world.copy()
    theirs, ours = others(world, KEYS, 5), own(world, KEYS, 7)
    options = {"pyhudi.memory.budget.bytes": budget}
    first = begin(world, write(world, WriteOperation.UPSERT, ours, **options))
    begin(world, write(world, WriteOperation.UPSERT, theirs)).finish()
    first.finish()
    expected.table.upsert(theirs)
    expected.table.upsert(ours)
    assert world.table.schema().equals(expected.table.schema())
    assert found(world) == found(expected)


def test_a_stream_that_can_be_read_once() -> None:
    world = world_with_commits("cow")
    theirs, ours = text(world, KEYS, 5), more(world, KEYS, 7)
    first = begin(world, write(world, WriteOperation.UPSERT, ours.to_reader()))
    begin(world, write(world, WriteOperation.UPSERT, theirs)).finish()
    first.finish()
    assert {row["small"] for key, row in found(world).items() if key in KEYS} == {"2"}


def test_rows_that_would_become_another_text() -> None:
    """A float of 32 bits that was made a double is 0.10000000149011612 as text, and 0.1 as it was given."""
    world = world_with_commits("cow")
    world.table.upsert(real(world, ["k4"], 1))
    before = rows(world, KEYS, "a", 7).append_column("small", pa.array([0.1] * len(KEYS), pa.float32()))
    first = begin(world, write(world, WriteOperation.UPSERT, before))
    begin(world, write(world, WriteOperation.UPSERT, text(world, KEYS, 5))).finish()
    with pytest.raises(WriteConflict, match=r"'small'.*given as float.*write the rows again"):
        first.finish()
    assert not world.table.timeline().pending()


def test_write_without_a_column_added_since_its_start_is_rejected() -> None:
    world = world_with_commits("cow", **{"hoodie.write.set.null.for.missing.columns": False})
    first = begin(world, write(world, WriteOperation.UPSERT, narrow(world, KEYS, 7)))
    begin(world, write(world, WriteOperation.UPSERT, more(world, KEYS, 5))).finish()
    with pytest.raises(InvalidRequest, match=r"more .*missing"):
        first.finish()
    assert not world.table.timeline().pending()

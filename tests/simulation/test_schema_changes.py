"""Schema changes by column id: crashes, concurrent schema changes and concurrent writes."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import InvalidRequest
from pyhudi.operations.admin.alter_columns import AlterSettings, run_alter
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.records.schema_on_read.column_changes import Add, ColumnChange, Drop, Rename
from pyhudi.table.table_context import TableContext
from tests.simulation.tables import World, killed_everywhere, partition_of
from tests.support.paused_write import PausedWrite

RENAMED = Rename("value", "worth")


def altering(world: World, change: ColumnChange) -> Callable[[TableContext], object]:
    settings = AlterSettings.of(parse_options(world.options))
    return lambda context: run_alter(context, change, settings)


def found(world: World) -> dict[str, dict[str, object]]:
    return {row["id"]: row for row in world.table.scan().to_arrow().to_pylist()}


def with_rows(kind: str, **options: object) -> World:
    world = World(kind, {"hoodie.clean.automatic": False, "hoodie.compact.inline": False, **options})
    world.upsert({"k0": 0, "k1": 1})
    return world


# What a commit's metadata table adds is killed in test_metadata_table.py.
@pytest.mark.crash_points
@pytest.mark.parametrize("has_history", [False, True])
@pytest.mark.parametrize(("kind", "metadata"), [("cow", False), pytest.param("mor", True, marks=pytest.mark.wide)])
def test_crash_during_a_schema_change_leaves_old_or_new_schema(kind: str, metadata: bool, has_history: bool) -> None:
    """At every call; the next change and the next write continue, and the ids of the dead change are harmless."""
    world = with_rows(kind, **{"hoodie.metadata.enable": metadata})
    if has_history:
        world.table.alter.add("more", pa.string())

    def check(run: World) -> None:
        last = run.table.timeline().last_completed_write()
        landed = last is not None and "worth" in run.table.schema().names
        name = "worth" if landed else "value"
        assert {key: row[name] for key, row in found(run).items()} == world.rows
        run.environment.advance_ms(3_600_000)
        run.table.alter.add("later", pa.string())
        rows = run.table.scan().to_arrow()
        run.table.upsert(rows.slice(0, 1))
        assert {key: (row[name], row["later"]) for key, row in found(run).items()} == {
            k: (v, None) for k, v in world.rows.items()
        }
        assert not run.table.timeline().pending()
        assert run.table.validate().ok

    assert killed_everywhere(world, lambda run, context: altering(run, RENAMED)(context), check) >= 5


@pytest.mark.parametrize("has_history", [False, True])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_two_changes_at_once(kind: str, has_history: bool) -> None:
    """Regardless of which was requested first, both are made; one that the other has made void reports that."""
    world = with_rows(kind)
    if has_history:
        world.table.alter.add("more", pa.string())
    first = PausedWrite(world.table.context, altering(world, RENAMED))
    second = PausedWrite(world.table.context, altering(world, Add("tip", pa.string())))
    void = PausedWrite(world.table.context, altering(world, Drop("value")))
    second.finish()
    first.finish()
    with pytest.raises(InvalidRequest, match="no column 'value'"):
        void.finish()
    assert {key: (row["worth"], row["tip"]) for key, row in found(world).items()} == {"k0": (0, None), "k1": (1, None)}
    assert not world.table.timeline().pending()


def rows(world: World, value: int, **more: pa.Array) -> pa.Table:
    stamp = world.environment.now_ms()
    return pa.table({"id": ["k0"], "part": [partition_of("k0")], "ts": [stamp], "value": [value], **more})


def writing(world: World, data: pa.Table) -> Callable[[TableContext], object]:
    options = parse_options({**world.options, "hoodie.write.set.null.for.missing.columns": True})
    settings = WriteSettings.of(options, WriteOperation.UPSERT)
    return lambda context: run_write(context, LocalEngine(1), data, settings)


@pytest.mark.parametrize("has_history", [False, True])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_write_under_way_was_requested_before_the_change(kind: str, has_history: bool) -> None:
    """It lands as it was planned, and is read by the columns of its time."""
    world = with_rows(kind)
    if has_history:
        world.table.alter.add("more", pa.string())
    write = PausedWrite(world.table.context, writing(world, rows(world, 7)))
    altering(world, RENAMED)(world.table.context)
    write.finish()
    assert {key: row["worth"] for key, row in found(world).items()} == {"k0": 7, "k1": 1}


@pytest.mark.parametrize("has_history", [False, True])
def test_schema_change_during_a_write_that_adds_a_column_is_kept(has_history: bool) -> None:
    """The write is retried with the new schema, so the table has both columns."""
    world = with_rows("cow")
    if has_history:
        world.table.alter.add("more", pa.string())
    write = PausedWrite(world.table.context, writing(world, rows(world, 7, brought=pa.array(["b"]))))
    altering(world, Add("tip", pa.string()))(world.table.context)
    write.finish()
    assert {key: (row["value"], row["brought"], row["tip"]) for key, row in found(world).items()} == {
        "k0": (7, "b", None),
        "k1": (1, None, None),
    }


@pytest.mark.parametrize("has_history", [False, True])
def test_a_write_that_is_requested_after_the_change(has_history: bool) -> None:
    """It lands first, so the change is planned again on what it left; or last, and is planned again itself."""
    for change_lands_first in (False, True):
        world = with_rows("cow")
        if has_history:
            world.table.alter.add("more", pa.string())
        change = PausedWrite(world.table.context, altering(world, Rename("value", "worth")))
        write = PausedWrite(world.table.context, writing(world, rows(world, 7, brought=pa.array(["b"]))))
        if change_lands_first:
            change.finish()
            write.finish()
            # It brings a column `value`, which is another one by then.
            assert found(world)["k0"]["worth"] is None and found(world)["k0"]["value"] == 7
        else:
            write.finish()
            change.finish()
            assert found(world)["k0"]["worth"] == 7
        assert found(world)["k0"]["brought"] == "b"
        assert found(world)["k1"]["worth"] == 1

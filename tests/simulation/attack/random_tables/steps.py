"""The steps: each draws what it does from its own seed, and gives what is done to the table and to the dictionary."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from pyhudi import Table
from pyhudi.errors import TableState, Unsupported, WriteConflict
from pyhudi.format.instants import Action
from pyhudi.records.keys.partition_paths import encode_partition_value
from tests.simulation.attack.random_tables.rules import DELETED
from tests.simulation.attack.random_tables.run import Deed, Row, Run, State, Values, draw_value
from tests.simulation.attack.random_tables.table_generator import KEYS, PARTITIONS

Maker = Callable[[Run, random.Random], Deed | None]


def upsert(run: Run, rng: random.Random) -> Deed:
    rows = [run.fresh(key, rng) for key in run.some(rng)]
    if run.drawn.soft:
        # With partial updates in a log, a delete removes the base row regardless of its ordering value.
        for number, row in enumerate(rows):
            if rng.random() < 0.25:
                gone = {**run.fresh(row["id"], rng, newer=run.drawn.is_mor), "part": row["part"]}
                rows[number] = run.rule.deleting(gone)
    if rng.random() < 0.2:
        rows += _again(run, rng, rows)
    data, options, columns = run.data(rows), write_options(run, rng), dict(run.columns)

    def change(instant: str) -> None:
        run.regain(columns)
        for row in rows:
            run.hold(row, instant)

    return Deed(lambda table: table.upsert(data, options=options), change, text=show(rows))


def _again(run: Run, rng: random.Random, rows: list[Values]) -> list[Values]:
    """A row of the batch a second time with later values: no more of the first one is left than its values for gaps, of rules
    which fill those of a batch, too, and that is what a second upsert would do.
    """
    once = [row for row in rows if not run.rule.deletes(row)]
    if not once or (run.rule.fills and not _fills_in_batch(run)) or run.rule.name == "highest":
        return []
    row = rng.choice(once)
    later = {**run.fresh(row["id"], rng), "part": row["part"], "ts": row["ts"] + rng.randint(1, 3)}
    if run.rule.ordering != "ts":
        later[run.rule.ordering] = later["ts"]
    return [later]


def _fills_in_batch(run: Run) -> bool:
    return run.version == 9 or run.rule.name == "partial"


def write_options(run: Run, rng: random.Random) -> dict[str, Any]:
    """The options of a call in addition to the table's own."""
    options: dict[str, Any] = {}
    families = (("SIMPLE", "BLOOM", "INMEMORY"), ("GLOBAL_SIMPLE", "GLOBAL_BLOOM"))
    for family in families:
        if run.drawn.index in family and rng.random() < 0.2:
            options["hoodie.index.type"] = rng.choice(family)
    if rng.random() < 0.1:
        options["hoodie.parquet.small.file.limit"] = rng.choice((0, 104857600))
    if run.drawn.is_mor and rng.random() < 0.1:
        options["hoodie.logfile.data.block.format"] = rng.choice(("avro", "parquet"))
    return options


def _unknown(run: Run, rng: random.Random) -> list[str]:
    return run.some(rng, [key for key in KEYS if key not in run.rows])


def insert(run: Run, rng: random.Random) -> Deed | None:
    rows = [run.fresh(key, rng) for key in _unknown(run, rng)]
    if not rows:
        return None
    data, bulk, columns = run.data(rows), rng.random() < 0.4, dict(run.columns)

    def change(instant: str) -> None:
        run.regain(columns)
        for row in rows:
            run.rows[row["id"]] = Row(row, instant)

    def act(table: Table) -> Any:
        return table.bulk_insert(data) if bulk else table.insert(data)

    return Deed(act, change, text=show(rows))


def insert_dropping(run: Run, rng: random.Random) -> Deed | None:
    """Rows whose keys are known are skipped."""
    if run.drawn.is_mor or run.drawn.has_buckets:
        return None
    rows = [run.fresh(key, rng) for key in run.some(rng)]
    data = run.data(rows)

    def change(instant: str) -> None:
        for row in rows:
            run.rows.setdefault(row["id"], Row(row, instant))

    return Deed(
        lambda table: table.insert(data, options={"hoodie.datasource.insert.dup.policy": "drop"}), change, text=show(rows)
    )


def delete(run: Run, rng: random.Random) -> Deed:
    keys = run.some(rng)
    names = [*run.drawn.keyed, *(["part"] if rng.random() < 0.5 and run.drawn.partitioned else [])]
    rows = []
    for key in keys:
        held = run.rows.get(key)
        part = held.values["part"] if held else run.part_of(key, rng)
        rows.append({"id": key, "no": int(key[1:]), "part": part})
    data = run.data(rows, names)

    def change(instant: str) -> None:
        for key in keys:
            run.bury(key)

    return Deed(lambda table: table.delete(data), change, text=f"{keys} by {names}")


def delete_where(run: Run, rng: random.Random) -> Deed:
    text, test = condition(run, rng)

    def change(instant: str) -> None:
        for key in [key for key, row in run.rows.items() if test(row.values)]:
            run.bury(key)

    return Deed(lambda table: table.delete(where=text), change, text=text)


def update(run: Run, rng: random.Random) -> Deed:
    text, test = condition(run, rng)
    name = rng.choice(_plain(run))
    value = None if pa.types.is_nested(run.columns[name]) else run.value(name, rng)

    def change(instant: str) -> None:
        for row in list(run.rows.values()):
            if test(row.values):
                run.hold({**row.values, name: value}, instant)

    given = f"'{value.replace(chr(39), chr(39) * 2)}'" if isinstance(value, str) else value
    return Deed(lambda table: table.update({name: given}, where=text), change, text=f"{name}={value!r} where {text}")


def _plain(run: Run) -> list[str]:
    fixed = {*run.drawn.keyed, "part", "ts", DELETED, "n", run.rule.ordering, *dict(run.rule.columns)}
    return [name for name in run.columns if name not in fixed]


def merge(run: Run, rng: random.Random) -> Deed:
    rows = [run.fresh(key, rng, newer=True) for key in run.some(rng)]
    if run.drawn.moves or run.drawn.is_global:
        for row in rows:
            if row["id"] in run.rows:
                row["part"] = run.rows[row["id"]].values["part"]
    data = run.data(rows)
    name, gone, absent = rng.choice(_plain(run)), rng.choice(KEYS), rng.random() < 0.3
    everything = rng.random() < 0.3

    def change(instant: str) -> None:
        before = dict(run.rows)
        for row in rows:
            key = row["id"]
            held = before.get(key)
            if held is None:
                run.rows[key] = Row(row, instant)
            elif key == gone:
                run.bury(key)
            else:
                run.hold(row if everything else {**held.values, name: row[name]}, instant)
        if absent:
            for key in before:
                if key not in {row["id"] for row in rows} and (before[key].values["v"] or 0) > 2:
                    run.bury(key)

    def act(table: Table) -> Any:
        made = table.merge(data, list(run.drawn.keyed)).when_matched_delete(where=f"source.id = {run.literal('id', gone)}")
        made = made.when_matched_update_all() if everything else made.when_matched_update({name: f"source.{name}"})
        made = made.when_not_matched_insert_all()
        if absent:
            made = made.when_not_matched_by_source_delete(where="target.v > 2")
        return made.execute()

    return Deed(act, change, text=f"{show(rows)} set {name}, all={everything} delete {gone} absent={absent}")


def partial(run: Run, rng: random.Random) -> Deed | None:
    names = rng.sample(_plain(run), rng.randint(1, 2))
    rows = []
    for key in run.some(rng):
        row = run.fresh(key, rng, newer=run.drawn.is_mor)
        if key in run.rows:
            row["part"] = run.rows[key].values["part"]
        rows.append(row)
    given = list(dict.fromkeys([*run.drawn.keyed, "part", "ts", run.rule.ordering, *names]))
    data = run.data(rows, given)

    def change(instant: str) -> None:
        for row in rows:
            held = run.rows.get(row["id"])
            if held is not None:
                run.hold({**held.values, **{name: row[name] for name in given}}, instant)

    # In one log a late row fills what a partial update before it lacks, as by Apache Hudi: from here on there are none.
    run.partly = run.partly or (run.drawn.is_mor and run.drawn.ordered)
    return Deed(lambda table: table.upsert(data, partial=True), change, text=f"{names} of {show(rows)}")


def overwrite(run: Run, rng: random.Random) -> Deed | None:
    whole = rng.random() < 0.3 or not run.drawn.partitioned
    rows = [run.fresh(key, rng) for key in run.some(rng)]
    parts = {row["part"] for row in rows}
    if not whole and run.drawn.is_global:
        # A key that remains in another partition would exist twice.
        rows = [row for row in rows if row["id"] not in run.rows or run.rows[row["id"]].values["part"] in parts]
        if {row["part"] for row in rows} != parts:
            return None
    data = run.data(rows)

    def change(instant: str) -> None:
        for key in [key for key, row in run.rows.items() if whole or row.values["part"] in parts]:
            run.bury(key)
        for row in rows:
            run.rows[row["id"]] = Row(row, instant)

    def act(table: Table) -> Any:
        return table.insert_overwrite_table(data) if whole else table.insert_overwrite(data)

    return Deed(act, change, text=f"{'all' if whole else sorted(parts)} {show(rows)}")


def delete_partitions(run: Run, rng: random.Random) -> Deed | None:
    if not run.drawn.partitioned:
        return None
    part = rng.choice(PARTITIONS)
    value = _value_of(run, part)
    path = f"part={value}" if "hoodie.datasource.write.hive_style_partitioning" in run.options else value
    parts: tuple[str, ...] = (part,)
    if rng.random() < 0.3:
        parts, path = PARTITIONS, "*"

    def change(instant: str) -> None:
        for key in [key for key, row in run.rows.items() if row.values["part"] in parts]:
            run.bury(key)

    return Deed(lambda table: table.delete_partitions(path), change, text=path)


def new_column(run: Run, rng: random.Random) -> Deed | None:
    number = sum(name.startswith("x") for name in run.columns)
    if number > 2:
        return None
    name = f"x{number}"
    kind = rng.choice((pa.int64(), pa.string(), pa.float64()))
    rows = [run.fresh(key, rng) for key in run.some(rng)]
    for row in rows:
        row[name] = draw_value(rng, kind)
    run_columns = {**run.columns, name: kind}
    data = run.table_of(rows, run_columns)

    def change(instant: str) -> None:
        run.columns = run_columns
        run.rows = {key: Row({**row.values, name: None}, row.instant) for key, row in run.rows.items()}
        for row in rows:
            run.hold(row, instant)

    return Deed(lambda table: table.upsert(data), change, text=f"{name} {kind} {show(rows)}")


def evolve(run: Run, rng: random.Random) -> Deed | None:
    """What a write changes of columns where it may: whole numbers become floating point."""
    if not pa.types.is_integer(run.columns.get("v", pa.null())):
        return None
    kind = rng.choice((pa.float32(), pa.float64()))
    columns = {**run.columns, "v": kind}
    rows = [run.fresh(key, rng) for key in run.some(rng)]
    rows = [{**row, "v": None if row["v"] is None else float(row["v"])} for row in rows]
    data = run.table_of(rows, columns)

    def change(instant: str) -> None:
        run.columns = columns
        held = {key: Row({**row.values, "v": None if row.values["v"] is None else float(row.values["v"])}, row.instant)
                for key, row in run.rows.items()}  # fmt: skip
        run.rows = held
        for row in rows:
            run.hold(row, instant)

    return Deed(lambda table: table.upsert(data, schema_mode="evolve"), change, text=f"v {kind} {show(rows)}")


def deeper(run: Run, rng: random.Random) -> Deed | None:
    """A new field inside of a struct."""
    if run.columns["n"].num_fields > 3 or run.by_ids:
        return None
    kind = pa.struct([*run.columns["n"], (f"c{run.columns['n'].num_fields}", rng.choice((pa.string(), pa.float64())))])
    added = kind.field(kind.num_fields - 1).name
    columns = {**run.columns, "n": kind}
    rows = [{**run.fresh(key, rng), "n": draw_value(rng, kind)} for key in run.some(rng)]
    if run.rule.fills and run.drawn.is_mor:
        rows = [row for row in rows if row["id"] not in run.buried]
    if not rows:
        return None
    data = run.table_of(rows, columns)

    def change(instant: str) -> None:
        run.columns = columns
        for key, held in list(run.rows.items()):
            if held.values["n"] is not None:
                run.rows[key] = Row({**held.values, "n": {**held.values["n"], added: None}}, held.instant)
        for row in rows:
            run.hold(row, instant)

    return Deed(lambda table: table.upsert(data), change, text=f"n.{added} {show(rows)}")


def overtaken(run: Run, rng: random.Random) -> Deed:
    """Rows that were computed from a scan, and another write that comes before them."""
    rows, later = ([run.fresh(key, rng, newer=True) for key in run.some(rng)] for _ in range(2))
    if run.drawn.moves:
        for row in later:
            row["part"] = next((one["part"] for one in rows if one["id"] == row["id"]), row["part"])
    data, computed = run.data(rows), run.data(later)
    results: list[Any] = []
    held, both = set(run.rows), {row["id"] for row in rows} & {row["id"] for row in later}

    def act(table: Table) -> Any:
        scan = table.scan()
        results.append(table.upsert(data))
        try:
            results.append(table.upsert(computed, based_on=scan))
        except (WriteConflict, TableState, Unsupported):
            # Overtaken, blocked by a planned clustering, or alone.
            pass
        return results[-1]

    def change(instant: str) -> None:
        for row in rows:
            run.hold(row, results[0].instant if results else instant)
        if len(results) > 1:
            assert not both & held, f"{both & held} changed since the scan that the rows were computed from"
            first = results[0]
            run.states.append(State(first.instant, first.completion_time, dict(run.rows), dict(run.columns)))
            for row in later:
                run.hold(row, results[1].instant)

    return Deed(act, change, text=f"{show(rows)} then {show(later)}", dies=False)


def empty(run: Run, rng: random.Random) -> Deed:
    """A write without rows."""
    data, operation = run.data([]), rng.choice(("upsert", "insert", "bulk_insert", "delete"))
    return Deed(lambda table: getattr(table, operation)(data), lambda instant: None, text=operation)


def wider(run: Run, rng: random.Random) -> Deed | None:
    if run.columns.get("v") != pa.int32():
        return None
    kind = pa.int64()
    rows = [run.fresh(key, rng) for key in run.some(rng)]
    columns = {**run.columns, "v": kind}
    data = run.table_of(rows, columns)

    def change(instant: str) -> None:
        run.columns = columns
        for row in rows:
            run.hold(row, instant)

    return Deed(lambda table: table.upsert(data), change, text=show(rows))


def missing(run: Run, rng: random.Random) -> Deed | None:
    """A batch that lacks a column: null in what it writes."""
    name = rng.choice([name for name in _plain(run)])
    rows = [{**run.fresh(key, rng), name: None} for key in run.some(rng) if key not in run.buried or not run.rule.fills]
    if not rows:
        return None
    data = run.data(rows, [each for each in run.columns if each != name])

    def change(instant: str) -> None:
        for row in rows:
            run.hold(row, instant)

    return Deed(lambda table: table.upsert(data), change, text=f"without {name} {show(rows)}")


def alter(run: Run, rng: random.Random) -> Deed | None:
    """A change of columns by ids."""
    plain = [name for name in _plain(run) if name != "v"]
    what = rng.choice(("add", "drop", "rename", "retype"))
    old = rng.choice(plain)
    free = [name for name in ("s", "f", "d", "y0", "y1", "y2") if name not in run.columns]
    # Rather a name that another column had.
    new = rng.choice([name for name in free if name in ("s", "f", "d")] or free or ["y3"])

    def renamed(values: Values) -> Values:
        return {(new if name == old else name): value for name, value in values.items()}

    if what == "add" and len(run.columns) < 14:
        act: Callable[[Table], Any] = lambda table: table.alter.add(new, pa.string())  # noqa: E731
        columns = {**run.columns, new: pa.string()}
        each: Callable[[Values], Values] = lambda values: {**values, new: None}  # noqa: E731
    elif what == "drop" and len(plain) > 1:
        act = lambda table: table.alter.drop(old)  # noqa: E731
        columns = {name: kind for name, kind in run.columns.items() if name != old}
        each = lambda values: {name: value for name, value in values.items() if name != old}  # noqa: E731
    elif what == "rename":
        act = lambda table: table.alter.rename(old, new)  # noqa: E731
        columns = {(new if name == old else name): kind for name, kind in run.columns.items()}
        each = renamed
    elif what == "retype" and run.columns["v"] == pa.int32():
        act = lambda table: table.alter.retype("v", pa.int64())  # noqa: E731
        columns = {**run.columns, "v": pa.int64()}
        each = dict
    else:
        return None

    def change(instant: str) -> None:
        run.by_ids = True
        run.columns = columns
        run.rows = {key: Row(each(row.values), row.instant) for key, row in run.rows.items()}

    return Deed(act, change, text=f"{what} {old} {new}")


# Services


def compact(run: Run, rng: random.Random) -> Deed | None:
    return Deed(lambda table: table.compact()) if run.drawn.is_mor else None


def plan_compaction(run: Run, rng: random.Random) -> Deed | None:
    if not run.drawn.is_mor:
        return None
    logs = rng.random() < 0.3
    return Deed(lambda table: table.schedule_log_compaction() if logs else table.schedule_compaction(), text="logs" * logs)


def log_compact(run: Run, rng: random.Random) -> Deed | None:
    return Deed(lambda table: table.log_compact()) if run.drawn.is_mor else None


def cluster(run: Run, rng: random.Random) -> Deed:
    by = rng.choice((None, ["v"], ["s", "v"]))
    by = by if by is None or set(by) <= set(run.columns) else None
    plan = rng.random() < 0.4
    return Deed(
        lambda table: table.schedule_clustering(order_by=by) if plan else table.cluster(order_by=by),
        text=f"{'planned ' * plan}by {by}",
    )


def run_pending_plan(run: Run, rng: random.Random) -> Deed | None:
    pending = run.table.timeline().pending(Action.COMPACTION, Action.CLUSTERING, Action.LOGCOMPACTION)
    if not pending:
        return None
    instant, drop = rng.choice(pending), rng.random() < 0.25

    def act(table: Table) -> Any:
        time = instant.request_time
        if instant.action is Action.CLUSTERING:
            return table.unschedule_clustering(time) if drop else table.cluster(time)
        if drop:
            return table.unschedule_compaction(time)
        return table.compact(time) if instant.action is Action.COMPACTION else table.log_compact(time)

    return Deed(act, text=f"{'drop ' * drop}{instant.action.value} {instant.request_time}")


def clean(run: Run, rng: random.Random) -> Deed:
    options = rng.choice(({}, {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 1}))
    return Deed(lambda table: table.clean(dry_run=False, options=options), text=str(options))


def archive(run: Run, rng: random.Random) -> Deed:
    return Deed(lambda table: table.archive())


def services(run: Run, rng: random.Random) -> Deed:
    return Deed(lambda table: table.run_services())


# Administration


def savepoint(run: Run, rng: random.Random) -> Deed | None:
    if not run.states:
        return None
    instant = rng.choice(run.states[-3:]).instant

    def act(table: Table) -> Any:
        table.savepoint(instant)
        run.savepoints.add(instant)

    return Deed(act, text=instant)


def unsave(run: Run, rng: random.Random) -> Deed | None:
    if not run.savepoints:
        return None
    instant = rng.choice(sorted(run.savepoints))

    def act(table: Table) -> Any:
        run.savepoints.discard(instant)
        table.delete_savepoint(instant)

    return Deed(act, text=instant)


def restore(run: Run, rng: random.Random) -> Deed | None:
    known = [state.instant for state in run.states[-4:-1]] + sorted(run.savepoints)
    known = [one for one in known if any(state.instant == one for state in run.states)]
    # What was requested later goes, also what completed before: no state of the dictionary is without that.
    ends = {state.instant: state.completed for state in run.states}
    known = [one for one in known if all(at <= one or end > ends[one] for at, end in ends.items())]
    if not known:
        return None
    instant = rng.choice(known)
    # A restore has an instant of its own; the dictionary returns to the requested one.
    act = _with_instant(lambda table: table.restore(instant), instant)
    return Deed(act, lambda _: run.back_to(instant), True, instant, restores=True)


def roll_back(run: Run, rng: random.Random) -> Deed | None:
    if len(run.states) < 2:
        return None
    last = run.table.timeline().completed_writes()
    if not last or last[-1].request_time != run.states[-1].instant:
        return None
    instant, before = run.states[-1].instant, run.states[-2].instant

    def change(_: str) -> None:
        run.back_to(before)

    return Deed(_with_instant(lambda table: table.rollback(instant), instant), change, True, instant, restores=True)


def _with_instant(act: Callable[[Table], Any], instant: str) -> Callable[[Table], Any]:
    class Done:
        pass

    def done(table: Table) -> Any:
        act(table)
        found = Done()
        found.instant = instant  # type: ignore[attr-defined]
        return found

    return done


def index(run: Run, rng: random.Random) -> Deed:
    kind = rng.choice(("record_index", "column_stats", "bloom_filters", "secondary_index", "expression", "partition_stats"))
    build = rng.random() < 0.75

    def act(table: Table) -> Any:
        make = table.index.create if build else table.index.schedule
        if kind == "secondary_index":
            make(kind, rng.choice(["s", "v"]), name="by_s")
        elif kind == "expression":
            make("column_stats", "d", name="by_d", function="year")
        else:
            make(kind)

    return Deed(act, text=f"{kind} {'built' if build else 'planned'}")


def index_pending(run: Run, rng: random.Random) -> Deed | None:
    pending = run.table.timeline().pending(Action.INDEXING)
    if not pending:
        return None
    time, drop = rng.choice(pending).request_time, rng.random() < 0.3

    def act(table: Table) -> Any:
        table.index.abort(time) if drop else table.index.run(time)

    return Deed(act, text=f"{'abort ' * drop}{time}")


def drop_index(run: Run, rng: random.Random) -> Deed | None:
    names = [info.name for info in run.table.index.list() if info.name != "files"]
    if rng.random() < 0.15:
        return Deed(lambda table: table.drop_metadata_table(), text="all")
    if not names:
        return None
    name, anew = rng.choice(sorted(names)), rng.random() < 0.3

    def act(table: Table) -> Any:
        table.index.rebuild(name) if anew else table.index.drop(name)

    return Deed(act, text=f"{name}{' anew' * anew}")


def change_version(run: Run, rng: random.Random) -> Deed:
    up = int(run.table.config.version) == 8

    def act(table: Table) -> Any:
        if up:
            table.upgrade(to=9)
        else:
            table.downgrade(to=8)
        run.options.pop("hoodie.write.table.version", None)
        if up:
            run.options["hoodie.write.table.version"] = 9
        run.version = 9 if up else 8

    return Deed(act, again=True, text="up" if up else "down")


def repair(run: Run, rng: random.Random) -> Deed:
    return Deed(lambda table: table.repair(dry_run=False))


def expire(run: Run, rng: random.Random) -> Deed | None:
    if not run.drawn.partitioned:
        return None
    options = {"hoodie.partition.ttl.inline": True, "hoodie.partition.ttl.strategy.days.retain": 1}
    options = {"hoodie.partition.ttl.strategy.days.retain": 1}
    gone: list[str] = []

    def act(table: Table) -> Any:
        gone.extend(table.expired_partitions(options=options))
        return table.run_ttl(options=options)

    def change(instant: str) -> None:
        parts = {part for part in PARTITIONS if _value_of(run, part) in {path.removeprefix("part=") for path in gone}}
        for key in [key for key, row in run.rows.items() if row.values["part"] in parts]:
            run.bury(key)

    return Deed(act, change)


def _value_of(run: Run, part: str) -> str:
    """The partition's value in its path."""
    code = run.drawn.codes.get("part")
    return encode_partition_value(str(code.to(part))) if code else part


def days(run: Run, rng: random.Random) -> Deed:
    run.environment.advance_ms(rng.choice((3_600_000, 86_400_000)))
    return Deed(lambda table: None)


def condition(run: Run, rng: random.Random) -> tuple[str, Callable[[Values], bool]]:
    """A filter, as text and as a function of a row."""
    number, word = rng.randint(-5, 5), rng.choice(("x", "y", "zebra", ""))
    keys = run.some(rng)
    choices: list[tuple[str, Callable[[Values], bool]]] = [
        (f"v >= {number}", lambda row: row["v"] is not None and row["v"] >= number),
        (f"v < {number}", lambda row: row["v"] is not None and row["v"] < number),
        ("v is null", lambda row: row["v"] is None),
        ("v is not null", lambda row: row["v"] is not None),
        (f"ts > {run.literal('ts', number)}", lambda row: row["ts"] > number),
        (f"part = {run.literal('part', rng.choice('a'))} or v = {number}", lambda row: row["part"] == "a" or row["v"] == number),
        (f"part in ({run.literal('part', 'b')}, {run.literal('part', 'c')})", lambda row: row["part"] in ("b", "c")),
        ("id in (" + ", ".join(run.literal("id", key) for key in keys) + ")", lambda row: row["id"] in keys),
        (f"n.a <= {number}", lambda row: row["n"] is not None and row["n"]["a"] is not None and row["n"]["a"] <= number),
    ]
    if "s" in run.columns and pa.types.is_string(run.columns["s"]):
        choices += [(f"s = '{word}'", lambda row: row["s"] == word), (f"s > '{word}'", lambda row: (row["s"] or "") > word)]
        choices += [(f"s <> '{word}'", lambda row: row["s"] is not None and row["s"] != word)]
        choices += [(f"s = '{word}' and v <> {number}", lambda row: row["s"] == word and row["v"] not in (None, number))]
    if "f" in run.columns and pa.types.is_floating(run.columns["f"]):
        choices += [("f > 1.0", lambda row: row["f"] is not None and not row["f"] <= 1.0)]
        choices += [("f = 0.0", lambda row: row["f"] == 0.0), ("f < 2.0", lambda row: row["f"] is not None and row["f"] < 2.0)]
    if "d" in run.columns and pa.types.is_date(run.columns["d"]):
        choices += [("d > DATE '2024-01-03'", lambda row: row["d"] is not None and row["d"].day > 3)]
        choices += [("year(d) = 2024", lambda row: row["d"] is not None), ("year(d) = 2023", lambda row: False)]
    return rng.choice(choices)


def show(rows: list[Values]) -> str:
    return " ".join(f"{row['id']}@{row['part']}:{row['ts']}{'!' * bool(row.get(DELETED))}" for row in rows)


WEIGHTS: dict[Maker, int] = {
    upsert: 14,
    insert: 5,
    insert_dropping: 3,
    delete: 5,
    delete_where: 3,
    update: 5,
    merge: 4,
    partial: 5,
    overwrite: 3,
    delete_partitions: 2,
    new_column: 2,
    wider: 1,
    evolve: 1,
    deeper: 2,
    empty: 1,
    overtaken: 2,
    missing: 2,
    alter: 4,
    compact: 3,
    plan_compaction: 4,
    log_compact: 3,
    cluster: 5,
    run_pending_plan: 7,
    clean: 3,
    archive: 3,
    services: 2,
    savepoint: 2,
    unsave: 1,
    restore: 2,
    roll_back: 4,
    index: 4,
    index_pending: 2,
    drop_index: 2,
    change_version: 1,
    repair: 1,
    expire: 1,
    days: 1,
}
STEPS: dict[str, Maker] = {maker.__name__: maker for maker in WEIGHTS}

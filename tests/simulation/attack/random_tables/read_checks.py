"""What must hold after a step: every type of read returns the rows of the dictionary."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from pyhudi import Table
from pyhudi.errors import InstantNotFound, InvalidRequest, TableState, Unsupported
from pyhudi.format.meta_columns import COMMIT_TIME, META_COLUMNS
from pyhudi.operations.read.stream_queries import next_position
from pyhudi.planning.stream_batches import BatchLimits
from tests.simulation.attack.random_tables.codes import Code, decoded
from tests.simulation.attack.random_tables.run import Run, State, Values
from tests.simulation.attack.random_tables.steps import condition
from tests.simulation.attack.random_tables.table_generator import KEYS

_GONE = (TableState, InstantNotFound)
NO_FALL_BACK = {"hoodie.datasource.read.incr.fallback.fulltablescan.enable": False}


def check_reads(run: Run, rng: random.Random, *, all_of_them: bool = False) -> None:
    """Look at the table in the plain way, and in some others."""
    table = run.table
    snapshot(run, table)
    read_checks = (check_time_travel, incremental, changes, check_streams, filters, lookup, counts, optimized, valid, matches)
    for each in read_checks if all_of_them else rng.sample(read_checks, rng.choice((0, 1, 1, 2))):
        try:
            each(run, table, rng)
        except AssertionError as error:
            error.add_note(f"looked by {each.__name__}")
            raise


class Held:
    """Readers that were created before a step.

    After it they return the rows of before, or an error that names missing files: never other rows, and never some of them.
    """

    def __init__(self, run: Run, rng: random.Random) -> None:
        self.codes = run.drawn.codes
        self.readers: list[tuple[str, Any, list[Values], dict[str, pa.DataType]]] = []
        if not run.states or rng.random() < 0.6:
            return
        table, rows = run.table, [row.values for row in run.rows.values()]
        text, test = condition(run, rng)
        scan = table.scan()
        parts, dataset = scan.splits(), scan.to_dataset()
        made: list[tuple[str, Any, list[Values]]] = [
            ("scan", scan.to_arrow, rows),
            ("filter " + text, table.scan(filter=text).to_arrow, [row for row in rows if test(row)]),
            ("splits", lambda: [row for part in parts for row in part.to_arrow().to_pylist()], rows),
            ("dataset", lambda: dataset.to_table(), rows),
        ]
        self.readers = [(*each, dict(run.columns)) for each in rng.sample(made, 2)]

    def check_reads(self) -> None:
        for name, read, rows, columns in self.readers:
            try:
                found = read()
            except _GONE:
                continue
            same(found, rows, columns, f"{name} of before the step", self.codes)


def plain(value: Any) -> Any:
    """A value that equals itself; -0.0 is another one than 0.0.  Fields of a struct that have no value may have come later."""
    if isinstance(value, float):
        return f"float {value}" if value != value or value == 0 else value
    if isinstance(value, list | tuple):
        return tuple(plain(each) for each in value)
    if isinstance(value, dict):
        return tuple((name, plain(each)) for name, each in sorted(value.items()) if each is not None)
    return value


def frozen(row: Values, columns: Any) -> tuple[Any, ...]:
    return tuple((name, plain(row[name])) for name in sorted(columns))


def same(
    found: pa.Table | list[Values], wanted: list[Values], columns: Any, what: str, codes: Mapping[str, Code] | None = None
) -> None:
    rows = decoded(found if isinstance(found, list) else found.to_pylist(), codes or {})
    ours = Counter(frozen(row, columns) for row in rows)
    theirs = Counter(frozen(row, columns) for row in wanted)
    if ours != theirs:
        raise AssertionError(
            f"{what}\n  too many: {list((ours - theirs).elements())}\n  lacking:  {list((theirs - ours).elements())}"
        )


def snapshot(run: Run, table: Table) -> None:
    if not run.states:
        return
    found = table.scan("*" if _has_meta(run) else None).to_arrow()
    names = [name for name in found.column_names if name not in META_COLUMNS]
    assert set(names) == set(run.columns), (names, list(run.columns))
    for name, code in run.drawn.codes.items():
        assert name not in names or found.schema.field(name).type == code.kind, f"{name} is {found.schema.field(name).type}"
    same(found, [row.values for row in run.rows.values()], run.columns, "snapshot", run.drawn.codes)
    if _has_meta(run):
        stamps = {row["id"]: row[COMMIT_TIME] for row in decoded(found.to_pylist(), run.drawn.codes)}
        wanted = {key: row.instant for key, row in run.rows.items()}
        assert stamps == wanted, f"commit times {sorted(stamps.items() ^ wanted.items())}"


def _has_meta(run: Run) -> bool:
    return run.options.get("hoodie.populate.meta.fields", True) is not False


def check_time_travel(run: Run, table: Table, rng: random.Random) -> None:
    for state in rng.sample(run.states, min(3, len(run.states))):
        moment = rng.choice((state.completed, state.instant))
        if moment == state.instant and not _in_turn(run):
            moment = state.completed
        if any(each.instant <= moment < each.completed for each in run.states):
            # What was requested by then counts, as in Hudi, and it was under way.
            continue
        try:
            found = table.scan(as_of=moment).to_arrow()
        except TableState:
            continue
        assert set(found.column_names) == set(state.columns), f"columns as of {moment}: {found.column_names} {state.columns}"
        same(
            found, [row.values for row in state.rows.values()], state.columns, f"as of {moment}, {state.instant}", run.drawn.codes
        )


def _in_turn(run: Run) -> bool:
    """No instant was requested before another completed."""
    order = sorted(run.states, key=lambda state: state.instant)
    return all(one.completed < two.instant for one, two in itertools.pairwise(order))


def incremental(run: Run, table: Table, rng: random.Random) -> None:
    if not run.states or not _has_meta(run):
        return
    begin = rng.choice(run.states)
    later = [state for state in run.states if state.completed >= begin.completed]
    end = rng.choice([*later, later[-1]])
    last: State = end
    try:
        until = end.completed if rng.random() < 0.7 or end is not later[-1] else None
        rows = table.incremental(after=begin.completed, end=until, options=NO_FALL_BACK).to_arrow()
    except TableState:
        return
    wanted = []
    for row in last.rows.values():
        completed = run.completions[row.instant]
        if begin.completed < completed <= last.completed:
            wanted.append(row.values)
    if pa.types.is_floating(rows.schema.field("v").type):
        # The column has become so since.
        wanted = [{**row, "v": None if row["v"] is None else float(row["v"])} for row in wanted]
    # Logs of the range are not merged with earlier files, so gaps remain in their rows, as by Apache Hudi.
    gaps = run.drawn.is_mor and bool(run.rule.fills)
    asked = last.columns if not run.by_ids and not gaps else run.drawn.keyed
    columns = [name for name in asked if name in rows.column_names]
    found = decoded(rows.to_pylist(), run.drawn.codes)
    if run.drawn.is_mor and (run.drawn.ordered or not run.rule.associative):
        # Rows of logs that lost to older commits are returned too, as by Apache Hudi.
        known = {frozen(row, columns) for row in wanted}
        found = [row for row in found if frozen(row, columns) in known]
    same(found, wanted, columns, f"incremental {begin.completed} to {end.completed}")


def changes(run: Run, table: Table, rng: random.Random) -> None:
    if run.drawn.codes or not run.drawn.has_cdc or not run.states or run.by_ids or run.rule.name == "marker":
        # A marker that the caller names is refused there.
        return
    begin = rng.choice(run.states)
    later = [state for state in run.states if state.completed >= begin.completed]
    end = rng.choice([*later, later[-1]])
    try:
        found = table.changes(after=begin.completed, end=end.completed).to_arrow().to_pylist()
    except TableState:
        return
    held = {key: row.values for key, row in begin.rows.items()}
    for row in found:
        before, after = (json.loads(row[name] or "null") for name in ("before", "after"))
        key = (after or before)["id"]
        if row["op"] == "i":
            assert key not in held, f"insert of {key}, which is there: {row}"
            assert before is None
        else:
            assert key in held, f"{row['op']} of {key}, which is not there: {row}"
            _same_image(before, held[key], row)
        if row["op"] == "d":
            assert after is None
            del held[key]
        else:
            held[key] = after
    assert set(held) == set(end.rows), f"changes {begin.completed} to {end.completed}: {sorted(held)} for {sorted(end.rows)}"
    for key, image in held.items():
        _same_image(image, end.rows[key].values, f"{key} at the end")


def _same_image(image: Values, row: Values, what: object) -> None:
    for name in ("id", "ts", "v", "s", "part"):
        if name in row:
            assert image.get(name) == row[name], f"{name} of {image} for {row} in {what}"


def check_streams(run: Run, table: Table, rng: random.Random) -> None:
    """A stream that has read rows which were rolled back since gets an error."""
    for position in rng.sample(run.gone, min(2, len(run.gone))):
        try:
            next_position(table.context, position, BatchLimits())
        except TableState as error:
            assert "has since rolled back" in str(error), f"from {position}, which is gone: {error}"
        else:
            raise AssertionError(f"a stream goes on from {position}, which is gone")


def filters(run: Run, table: Table, rng: random.Random) -> None:
    if not run.states:
        return
    for _ in range(2):
        text, test = condition(run, rng)
        wanted = [row.values for row in run.rows.values() if test(row.values)]
        same(table.scan(filter=text).to_arrow(), wanted, run.columns, f"filter {text}", run.drawn.codes)
        assert table.scan(filter=text).count() == len(wanted), f"count of {text}"


def lookup(run: Run, table: Table, rng: random.Random) -> None:
    if not run.states:
        return
    keys = run.some(rng)
    rows = [{"id": key, "no": int(key[1:]), "part": run.rows[key].values["part"] if key in run.rows else "a"} for key in keys]
    names = [*run.drawn.keyed, *(["part"] if rng.random() < 0.4 and not run.drawn.is_global else [])]
    wanted = [run.rows[key].values for key in keys if key in run.rows]
    same(table.lookup(run.data(rows, names)).to_arrow(), wanted, run.columns, f"lookup {keys} by {names}", run.drawn.codes)
    absent = table.filter_exists(run.data(rows, names))
    gone = [row["id"] for row in decoded(absent.to_pylist(), run.drawn.codes)]
    assert sorted(gone) == sorted(key for key in keys if key not in run.rows), f"filter_exists {keys}"


def matches(run: Run, table: Table, rng: random.Random) -> None:
    """Rows that match a small table."""
    if not run.states:
        return
    names = rng.choice((["v"], ["id"], ["part"], ["s"]))
    if names[0] not in run.columns:
        return
    held = [row.values for row in run.rows.values()]
    chosen = [row for row in held if row[names[0]] is not None and rng.random() < 0.4][:2]
    wanted = [row for row in held if any(row[names[0]] == one[names[0]] for one in chosen)]
    same(
        table.scan(keys=run.data(chosen, names)).to_arrow(),
        wanted,
        run.columns,
        f"rows like {names} of {len(chosen)}",
        run.drawn.codes,
    )


def counts(run: Run, table: Table, rng: random.Random) -> None:
    if not run.states:
        return
    assert table.scan().count() == len(run.rows), "count"
    name = rng.choice(sorted(run.columns))
    found = table.scan([name]).to_arrow()
    same(found, [row.values for row in run.rows.values()], [name], f"column {name} alone", run.drawn.codes)
    splits = sum(split.to_arrow().num_rows for split in table.scan().splits())
    assert splits == len(run.rows), f"{splits} rows in splits"
    assert len(table.scan(limit=2).to_arrow()) == min(2, len(run.rows)), "limit"


def optimized(run: Run, table: Table, rng: random.Random) -> None:
    if not run.states:
        return
    found = table.read_optimized().to_arrow()
    if not run.drawn.is_mor:
        same(found, [row.values for row in run.rows.values()], run.columns, "read optimized", run.drawn.codes)
        return
    if run.by_ids:
        return
    for row in decoded(found.to_pylist(), run.drawn.codes):
        known = run.ever.get(row["id"], [])
        assert any(_like(row, one) for one in known), f"read optimized: {row} never was"


def _like(row: Values, one: Values) -> bool:
    def number(name: str, value: Any) -> Any:
        # Of a column that became floating point since.
        return float(value) if name == "v" and value is not None else value

    return all(plain(number(name, value)) == plain(number(name, one.get(name))) for name, value in row.items())


def valid(run: Run, table: Table, rng: random.Random) -> None:
    try:
        report = table.validate(keys=_has_meta(run))
    except (Unsupported, InvalidRequest):
        return
    assert report.ok, str(report)


__all__ = ["KEYS", "check_reads"]

"""What a rule of a user's own has to hold to, as checks to run on it: in a test, before a table is trusted to it.

    from pyhudi.testing import check_merger

    def test_my_merger():
        check_merger(KeepHighest(), first, second, third)          # three states of the same records, as Arrow tables

Each check raises InvalidRequest that says what does not hold, and returns nothing.  They find what would harm a table: rows that
come out in another number or order, answers that depend on how often a table was compacted, rules that do not reach a worker.
What they cannot find is a rule that holds to all this and keeps the wrong rows.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pyarrow as pa

from pyhudi.errors import InvalidRequest
from pyhudi.format.actions.compaction_plan import CompactionOperation
from pyhudi.format.names import BaseFileName
from pyhudi.planning.clustering import Grouping
from pyhudi.planning.compaction import CompactionStrategyRule
from pyhudi.records.mergers import DeleteMerger, PartialMerger, RecordMerger
from pyhudi.storage.time_generators import TimeGenerator
from pyhudi.table.file_slices import BaseFile, FileSlice

_DAY = "20260101000000000"
_COUNTS = (0, 1, 2, 7)


def check_time_generator(generator: TimeGenerator, uri: str, *, times: int = 1000, threads: int = 4) -> None:
    """A time generator gives each time once, and times that grow, to several threads that ask at once too.

    uri: of a table that no writer uses it for.  What another machine is given is beyond this check.
    """
    if threads < 1 or times < threads:
        raise InvalidRequest(f"check_time_generator asks for at least one time in each thread, found {times=} and {threads=}")

    def ask(count: int) -> list[int]:
        return [generator.now_ms(uri) for _ in range(count)]

    with ThreadPoolExecutor(threads) as pool:
        answers = list(pool.map(ask, [times // threads] * threads))
    for given in answers:
        for before, after in pairwise(given):
            if after <= before:
                raise InvalidRequest(f"time generator {generator!r} says {after} for {uri} after it said {before}")
    every = [time for given in answers for time in given]
    if len(set(every)) < len(every):
        raise InvalidRequest(f"time generator {generator!r} says one time for {uri} twice, to threads that ask at once")


def check_merger(merger: RecordMerger, first: pa.Table, second: pa.Table, third: pa.Table) -> None:
    """Three states of the same records, the oldest first: aligned tables of the same columns, without meta columns or with them.

    A merger answers with as many rows, in the columns of the newer state and in its order; leaves what it is given as it was;
    says the same when it is asked again; is associative, as a compaction may come after any state; and can be pickled, so that
    Spark's workers have it.  A partial merger gives the same by `partial_merge` where both sides have all columns; one that is
    asked about deletes answers for each, whichever stand beside it.
    """
    for name, older, newer in (("first and second", first, second), ("second and third", second, third)):
        _check_answer(merger, name, older, newer)
    left, left_there = _merged(merger, first, second)
    right, right_there = _merged(merger, second, third)
    if left_there.all() and right_there.all():
        # A record that was dropped on the way is settled by deletes, which a merger is not asked about.
        step_by_step = _alive(merger, left, third)
        at_once = _alive(merger, first, right)
        if not step_by_step.equals(at_once):
            raise InvalidRequest(
                f"merger {merger.strategy_id} is not associative: merging the first two states and then the third gives "
                f"{step_by_step.to_pylist()}, and the last two first {at_once.to_pylist()}"
            )
    if isinstance(merger, PartialMerger):
        whole, alive = _answer(merger.partial_merge(first, second))
        expected, there = _answer(merger.merge(first, second))
        if not whole.select(expected.column_names).equals(expected) or not np.array_equal(alive, there):
            raise InvalidRequest(
                f"merger {merger.strategy_id} merges whole records in another way by partial_merge than by merge"
            )
    if isinstance(merger, DeleteMerger):
        _check_deletes(merger, first, second)
    _check_pickles(merger)


def check_compaction_strategy(strategy: CompactionStrategyRule) -> None:
    """A strategy takes some of the operations that it is offered, each once, none of its own making; and always the same."""
    for count in _COUNTS:
        offered = tuple(
            CompactionOperation(
                base_instant_time=_DAY,
                delta_file_paths=tuple(f".f{n}-0_{_DAY}.log.{v}_0-0-0" for v in range(1, n + 2)),
                data_file_path=None,
                file_id=f"f{n}-0",
                partition_path=f"2026/01/{n % 3 + 1:02d}",
                metrics={"TOTAL_LOG_FILES": n + 1.0, "TOTAL_LOG_FILES_SIZE": 1048576.0 * n, "TOTAL_IO_MB": 2.0 * n},
            )
            for n in range(count)
        )
        taken = [tuple(map(id, strategy(offered))) for _ in range(2)]
        _check_choice("compaction strategy", taken, [id(operation) for operation in offered])


def check_clustering_strategy(grouping: Grouping) -> None:
    """A strategy puts slices that it is offered into groups, each into one at most; and always the same."""
    for count in _COUNTS:
        offered = tuple(_slice(n) for n in range(count))
        taken = [tuple(id(s) for group in grouping("2026/01/01", offered) for s in group) for _ in range(2)]
        _check_choice("clustering strategy", taken, [id(s) for s in offered])


def _slice(number: int) -> FileSlice:
    name = BaseFileName(f"f{number}-0", "0-0-0", _DAY, ".parquet")
    return FileSlice("2026/01/01", name.file_id, _DAY, BaseFile(f"2026/01/01/{name}", name, (number + 1) << 20))


def _check_answer(merger: RecordMerger, name: str, older: pa.Table, newer: pa.Table) -> None:
    said = f"merger {merger.strategy_id}, of the {name} state,"
    before = (_copy(older), _copy(newer))
    rows, alive = _merged(merger, older, newer)
    if not (older.equals(before[0]) and newer.equals(before[1])):
        raise InvalidRequest(f"{said} changed the rows that it was given")
    if rows.num_rows != newer.num_rows or len(alive) != newer.num_rows:
        raise InvalidRequest(f"{said} answered with {rows.num_rows} rows and {len(alive)} marks for {newer.num_rows} records")
    missing = [column for column in newer.column_names if column not in rows.column_names]
    if missing:
        raise InvalidRequest(f"{said} left out the columns {', '.join(missing)}")
    again, alive_again = _merged(merger, older, newer)
    if not rows.equals(again) or not np.array_equal(alive, alive_again):
        raise InvalidRequest(f"{said} gave another answer when it was asked again")
    backwards = slice(None, None, -1)
    order = np.arange(newer.num_rows)[backwards]
    turned, alive_turned = _merged(merger, older.take(order), newer.take(order))
    if not turned.equals(rows.take(order)) or not np.array_equal(alive[backwards], alive_turned):
        raise InvalidRequest(f"{said} answers for a record by its place among others")


def _check_deletes(merger: DeleteMerger, older: pa.Table, newer: pa.Table) -> None:
    told = pa.array(np.asarray(merger.deletes(older, newer)))
    if len(told) != newer.num_rows:
        raise InvalidRequest(
            f"merger {merger.strategy_id} was asked about {newer.num_rows} deletes, and answered for {len(told)}"
        )
    alone = [np.asarray(merger.deletes(older.slice(n, 1), newer.slice(n, 1))).tolist() for n in range(newer.num_rows)]
    if [[one] for one in told.to_pylist()] != alone:
        raise InvalidRequest(f"merger {merger.strategy_id} answers for a delete by what stands beside it: {told} and {alone}")


def _merged(
    merger: RecordMerger, older: pa.Table, newer: pa.Table
) -> tuple[pa.Table, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    return _answer(merger.merge(older, newer))


def _answer(result: tuple[pa.Table, object]) -> tuple[pa.Table, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    rows, alive = result
    marks = np.ones(rows.num_rows, dtype=np.bool_) if alive is None else np.asarray(alive, dtype=np.bool_)
    return rows, marks


def _alive(merger: RecordMerger, older: pa.Table, newer: pa.Table) -> pa.Table:
    rows, there = _merged(merger, older, newer)
    return rows.filter(pa.array(there))


def _copy(rows: pa.Table) -> pa.Table:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def _check_choice(description: str, taken: Sequence[tuple[int, ...]], offered: Sequence[int]) -> None:
    first, again = taken
    if len(set(first)) < len(first):
        raise InvalidRequest(f"the {description} took the same thing twice, of {len(offered)}")
    if not set(first) <= set(offered):
        raise InvalidRequest(f"the {description} took what it was not offered, of {len(offered)}")
    if first != again:
        raise InvalidRequest(f"the {description} took other things when it was asked again, of {len(offered)}")


def _check_pickles(merger: RecordMerger) -> None:
    try:
        pickle.loads(pickle.dumps(merger))
    except Exception as error:
        raise InvalidRequest(
            f"merger {merger.strategy_id} cannot be pickled, so Spark's workers cannot have it: {error}"
        ) from error

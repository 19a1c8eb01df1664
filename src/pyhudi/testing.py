"""Checks for user-defined rules (mergers, strategies, time generators), to run in tests before a table uses them.

    from pyhudi.testing import check_merger

    def test_my_merger():
        check_merger(KeepHighest(), first, second, third)          # three states of the same records, as Arrow tables

Each check raises InvalidRequest with the violated requirement, and returns nothing. They detect what would damage a
table: a wrong number or order of rows, results that depend on the number of compactions, rules that cannot be sent to a
worker. They cannot detect a rule that meets all requirements and keeps the wrong rows.
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
    """Check that a time generator returns unique, increasing times, even to concurrent threads.

    Times on other machines are outside of this check.

    Args:
        generator: The generator.
        uri: A table that no writer uses it for.
        times: Number of times to request.
        threads: Number of concurrent threads.

    Raises:
        InvalidRequest: A requirement is violated.
    """
    if threads < 1 or times < threads:
        raise InvalidRequest(f"check_time_generator requires at least one time in each thread, found {times=} and {threads=}")

    def request(count: int) -> list[int]:
        return [generator.now_ms(uri) for _ in range(count)]

    with ThreadPoolExecutor(threads) as pool:
        results = list(pool.map(request, [times // threads] * threads))
    for thread_times in results:
        for previous, following in pairwise(thread_times):
            if following <= previous:
                raise InvalidRequest(
                    f"time generator {generator!r} is not monotonic: it returned {following} for {uri} after {previous}"
                )
    all_times = [time for thread_times in results for time in thread_times]
    if len(set(all_times)) < len(all_times):
        raise InvalidRequest(f"time generator {generator!r} returned one time for {uri} twice to concurrent threads")


def check_merger(merger: RecordMerger, first: pa.Table, second: pa.Table, third: pa.Table) -> None:
    """Check a merger with three states of the same records.

    Requirements:

    - It returns as many rows as it receives, with the columns and in the order of the newer state.
    - It does not modify its input, and returns the same result when called again.
    - It is associative, because a compaction may follow any state.
    - It can be pickled, so that Spark's workers receive it.
    - A partial merger returns the same from `partial_merge` if both sides have all columns.
    - A delete merger returns a result for each delete, independent of the other deletes.

    Args:
        merger: The merger.
        first: The oldest state. All states are aligned tables of the same columns, with or without meta columns.
        second: The next state.
        third: The newest state.

    Raises:
        InvalidRequest: A requirement is violated.
    """
    for name, older, newer in (("first and second", first, second), ("second and third", second, third)):
        _check_merge(merger, name, older, newer)
    left, left_alive = _merged(merger, first, second)
    right, right_alive = _merged(merger, second, third)
    if left_alive.all() and right_alive.all():
        # Deletes decide about a record that was dropped in between, and a merger is not called for these.
        step_by_step = _alive(merger, left, third)
        at_once = _alive(merger, first, right)
        if not step_by_step.equals(at_once):
            raise InvalidRequest(
                f"merger {merger.strategy_id} is not associative: merging the first two states and then the third returns "
                f"{step_by_step.to_pylist()}, but {at_once.to_pylist()} if the last two are merged first"
            )
    if isinstance(merger, PartialMerger):
        whole, alive = _rows_and_flags(merger.partial_merge(first, second))
        expected, expected_alive = _rows_and_flags(merger.merge(first, second))
        if not whole.select(expected.column_names).equals(expected) or not np.array_equal(alive, expected_alive):
            raise InvalidRequest(f"merger {merger.strategy_id} merges whole records differently by partial_merge and by merge")
    if isinstance(merger, DeleteMerger):
        _check_deletes(merger, first, second)
    _check_pickles(merger)


def check_compaction_strategy(strategy: CompactionStrategyRule) -> None:
    """Check that a strategy selects a subset of the offered operations, each at most once, and deterministically."""
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
        selections = [tuple(map(id, strategy(offered))) for _ in range(2)]
        _check_choice("compaction strategy", selections, [id(operation) for operation in offered])


def check_clustering_strategy(grouping: Grouping) -> None:
    """Check that a strategy groups a subset of the offered slices, each in at most one group, and deterministically."""
    for count in _COUNTS:
        offered = tuple(_slice(n) for n in range(count))
        selections = [tuple(id(s) for group in grouping("2026/01/01", offered) for s in group) for _ in range(2)]
        _check_choice("clustering strategy", selections, [id(s) for s in offered])


def _slice(number: int) -> FileSlice:
    name = BaseFileName(f"f{number}-0", "0-0-0", _DAY, ".parquet")
    return FileSlice("2026/01/01", name.file_id, _DAY, BaseFile(f"2026/01/01/{name}", name, (number + 1) << 20))


def _check_merge(merger: RecordMerger, name: str, older: pa.Table, newer: pa.Table) -> None:
    subject = f"merger {merger.strategy_id}, merging the {name} state,"
    originals = (_copy(older), _copy(newer))
    rows, alive = _merged(merger, older, newer)
    if not (older.equals(originals[0]) and newer.equals(originals[1])):
        raise InvalidRequest(f"{subject} modified its input")
    if rows.num_rows != newer.num_rows or len(alive) != newer.num_rows:
        raise InvalidRequest(f"{subject} returned {rows.num_rows} rows and {len(alive)} flags for {newer.num_rows} records")
    missing = [column for column in newer.column_names if column not in rows.column_names]
    if missing:
        raise InvalidRequest(f"{subject} omitted the columns {', '.join(missing)}")
    repeated, alive_repeated = _merged(merger, older, newer)
    if not rows.equals(repeated) or not np.array_equal(alive, alive_repeated):
        raise InvalidRequest(f"{subject} returned another result when called again")
    reverse = slice(None, None, -1)
    order = np.arange(newer.num_rows)[reverse]
    reversed_rows, alive_reversed = _merged(merger, older.take(order), newer.take(order))
    if not reversed_rows.equals(rows.take(order)) or not np.array_equal(alive[reverse], alive_reversed):
        raise InvalidRequest(f"{subject} returned a result that depends on the position of a record")


def _check_deletes(merger: DeleteMerger, older: pa.Table, newer: pa.Table) -> None:
    results = pa.array(np.asarray(merger.deletes(older, newer)))
    if len(results) != newer.num_rows:
        raise InvalidRequest(f"merger {merger.strategy_id} returned {len(results)} results for {newer.num_rows} deletes")
    separate = [np.asarray(merger.deletes(older.slice(n, 1), newer.slice(n, 1))).tolist() for n in range(newer.num_rows)]
    if [[result] for result in results.to_pylist()] != separate:
        raise InvalidRequest(
            f"merger {merger.strategy_id} returned a result for a delete that depends on other deletes: {results} and {separate}"
        )


def _merged(
    merger: RecordMerger, older: pa.Table, newer: pa.Table
) -> tuple[pa.Table, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    return _rows_and_flags(merger.merge(older, newer))


def _rows_and_flags(result: tuple[pa.Table, object]) -> tuple[pa.Table, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    rows, alive = result
    marks = np.ones(rows.num_rows, dtype=np.bool_) if alive is None else np.asarray(alive, dtype=np.bool_)
    return rows, marks


def _alive(merger: RecordMerger, older: pa.Table, newer: pa.Table) -> pa.Table:
    rows, alive = _merged(merger, older, newer)
    return rows.filter(pa.array(alive))


def _copy(rows: pa.Table) -> pa.Table:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def _check_choice(description: str, chosen: Sequence[tuple[int, ...]], options: Sequence[int]) -> None:
    first, repeated = chosen
    if len(set(first)) < len(first):
        raise InvalidRequest(f"the {description} selected the same item twice, of {len(options)}")
    if not set(first) <= set(options):
        raise InvalidRequest(f"the {description} selected an item that was not offered, of {len(options)}")
    if first != repeated:
        raise InvalidRequest(f"the {description} selected other items when called again, of {len(options)}")


def _check_pickles(merger: RecordMerger) -> None:
    try:
        pickle.loads(pickle.dumps(merger))
    except Exception as error:
        raise InvalidRequest(
            f"merger {merger.strategy_id} cannot be pickled, so it cannot be sent to Spark's workers: {error}"
        ) from error

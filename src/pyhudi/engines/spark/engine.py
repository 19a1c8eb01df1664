"""The Engine protocol over Spark DataFrames.

A small batch is collected by the driver and written from there (driver_batch.py); a larger one in jobs:

    1. prepare    columns cast to the table's, record key and partition path in front; cached and measured
                  (incoming.py). If keys are looked up, the driver collects them at once, up to a number, and counts
                  them itself
    2. look up    few keys: one small job over the files or the record index; many keys: a native join, or a shuffle by
                  file groups of the record index (distributed_lookup.py); with a bucket index only a hash
    3. write      rows get the number of their file group, one shuffle brings each group into one task, sorted by group,
                  and one `mapInArrow` merges and writes group after group (routing.py, worker_tasks.py); the driver
                  collects only write statuses

Duplicates are combined in the writing task, after a sort by key, which needs no shuffle of its own. Only with a global
index, where rows of one key may belong to different partitions, a shuffle by key comes first.

Of two rows with one key and equal ordering values the later one in the DataFrame's order wins; Spark does not guarantee
that order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.engines.arrow.incoming import LocalIncoming
from pyhudi.engines.spark.driver_batch import DriverWorkers, fits_driver
from pyhudi.engines.spark.incoming import FrameIncoming
from pyhudi.engines.spark.input_frames import plain_frame
from pyhudi.engines.spark.jobs import run_tasks, set_worker_python, translated_errors
from pyhudi.engines.spark.native_keys import path_column
from pyhudi.engines.spark.routing import check_reachable
from pyhudi.engines.spark.type_conversion import DataFrame, SparkSession, to_arrow_schema
from pyhudi.errors import InvalidRequest
from pyhudi.format.meta_columns import PARTITION_PATH
from pyhudi.records.keys.key_spec import KeySpec
from pyhudi.records.type_normalization import normalize_types
from pyhudi.tasks.engine_protocol import BulkPlan, PrepareRequest, Tagged, TagRequest
from pyhudi.tasks.write_tasks import WriteStatus

R = TypeVar("R")
A = TypeVar("A")

_DRIVER_WORK_BYTES = 64 << 20
"""Bytes that tasks of table services read and write on the driver; larger work is a job, whose workers may have to start first.
"""


class SparkEngine:
    """Runs on the cluster of a Spark session, classic or Connect."""

    name = "spark"
    may_leave_attempts = True

    def __init__(self, session: SparkSession) -> None:
        set_worker_python(session)
        self.session = session

    def input_schema(self, data: Any) -> pa.Schema:
        """The schema of a DataFrame.  Raises InvalidRequest for other data and for types that Arrow lacks."""
        return to_arrow_schema(_frame_of(data).schema)

    def prepare(self, data: Any, request: PrepareRequest) -> SparkIncoming:
        """Define the preparation of the rows; nothing runs until the rows are needed."""
        return SparkIncoming(self.session, _frame_of(data), request)

    def partition_paths(self, data: Any, keys: KeySpec) -> list[str]:
        """The distinct partition paths of a DataFrame's rows, sorted."""
        frame = _frame_of(data)
        path = path_column(keys, normalize_types(to_arrow_schema(frame.schema)))
        with translated_errors():
            return sorted(row["path"] for row in frame.select(path.alias("path")).distinct().collect())

    def map(self, function: Callable[[A], R], tasks: Iterable[A]) -> list[R]:
        """Run tasks on the cluster; results in order.  The first error fails the job and is raised."""
        return run_tasks(self.session, function, tasks)

    def run_tasks(self, function: Callable[[A], R], tasks: Iterable[A], size_bytes: Sequence[int]) -> list[R]:
        """Like `map`, but in threads of the driver if the tasks are less work than a job; results in order."""
        if not fits_driver(size_bytes, _DRIVER_WORK_BYTES):
            return self.map(function, tasks)
        return DriverWorkers(self.session, _DRIVER_WORK_BYTES).map(function, tasks)


class SparkIncoming:
    """Rows of a write: on the driver if they are small, else on the cluster; decided at first use.

    A bulk insert without a prior lookup or count is written in one job, as its rows arrive.
    """

    def __init__(self, session: SparkSession, frame: DataFrame, request: PrepareRequest) -> None:
        """frame: the caller's rows."""
        self._session = session
        self._given = to_arrow_schema(frame.schema)
        self._request = request
        self._frames = FrameIncoming(session, frame, request)
        self._chosen: LocalIncoming | FrameIncoming | None = None
        self._counts: dict[str, int] = {}

    def partitions(self) -> dict[str, int]:
        """Rows by partition path, before duplicates are combined."""
        rows = self._rows()
        return dict(self._counts) if isinstance(rows, LocalIncoming) else rows.partitions()

    def row_counts(self) -> tuple[int | None, int | None]:
        """Return the numbers of rows given, and of rows dropped for another one of their key; None if not known."""
        return (self._chosen or self._frames).row_counts()

    def tag(self, request: TagRequest) -> Tagged:
        """Look up the keys; with a global index also resolve records whose partition changed."""
        check_reachable(request.spec)
        return self._rows().tag(request)

    def untagged(self) -> Tagged:
        """All rows as inserts."""
        return self._rows().untagged()

    def write_bulk(self, plan: BulkPlan) -> list[WriteStatus]:
        """Write all rows to new file groups."""
        check_reachable(plan.spec)
        return (self._chosen or self._frames).write_bulk(plan)

    def refit(self, request: PrepareRequest) -> None:
        """Prepare the caller's rows again."""
        self._release_driver_rows()
        self._request = request
        self._frames.refit(request)

    def release(self) -> None:
        """Release the cached rows of Spark and the driver."""
        self._release_driver_rows()
        self._frames.release()

    def _release_driver_rows(self) -> None:
        if isinstance(self._chosen, LocalIncoming):
            self._chosen.release()
        self._chosen = None

    def _rows(self) -> LocalIncoming | FrameIncoming:
        if self._chosen is None:
            request = self._request
            driver_rows = rows_for_driver(self._frames, request)
            if driver_rows is None:
                self._chosen = self._frames
            else:
                self._frames.release()
                self._counts = {
                    entry["values"]: entry["counts"] for entry in pc.value_counts(driver_rows.column(PARTITION_PATH)).to_pylist()
                }
                workers = DriverWorkers(self._session, request.driver_work_bytes)
                self._chosen = LocalIncoming(workers, self._given, [driver_rows], request)
        return self._chosen


def rows_for_driver(rows: FrameIncoming, request: PrepareRequest) -> pa.Table | None:
    """The rows, if they are small enough for the driver; None if they stay on the cluster, cached there.

    Very few rows are collected at once; for more, their bytes are counted first.
    """
    limit = request.driver_batch_bytes
    if limit <= 0:
        return None
    few = rows.collect_if_small()
    if few is not None:
        return few
    return rows.collect() if rows.measured()[1] <= limit else None


def _frame_of(data: Any) -> DataFrame:
    if isinstance(data, DataFrame):
        return plain_frame(data)
    raise InvalidRequest(f"the Spark engine requires a Spark DataFrame, found {type(data).__module__}.{type(data).__name__}")

"""Resolve ambiguous lookup hits: which of several candidates of a key has a live row (see `tasks.resolve_duplicates`).

The driver collects the affected file groups, never keys. Tasks read those with logs, and a join by key determines where
each key is live. Without ambiguous keys, this costs one scan of the cached hits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyhudi.engines.spark.distributed_lookup import KEY_PARTITIONS, KEY_ROWS, KeyReadTask, key_rows
from pyhudi.engines.spark.jobs import task_rows, translated_errors
from pyhudi.engines.spark.type_conversion import column
from pyhudi.engines.spark.worker_tasks import FILE, FILES, KEY_PARTITION
from pyhudi.format.meta_columns import RECORD_KEY
from pyhudi.tasks.engine_protocol import TagRequest
from pyhudi.tasks.read_slice import ReadSpec, read_live_keys
from pyhudi.tasks.resolve_duplicates import by_age, has_logs


def resolve_live_hits(
    session: SparkSession, hits: DataFrame, request: TagRequest, persisted: Callable[[DataFrame], DataFrame]
) -> DataFrame:
    """Remove candidates without a live row of a key that has several candidates.

    Args:
        hits: Result of `lookup_distributed`, cached because it is read twice.
        request: The lookup request.
        persisted: Caches a DataFrame until the write ends.
    """
    if not any(has_logs(place) for place in request.candidates):
        return hits
    is_doubtful = F.coalesce(F.size(FILES), F.lit(0)) > 1
    with translated_errors():
        doubtful_files = hits.where(is_doubtful).select(F.explode(FILES).alias(FILE)).distinct().toArrow()
    involved: list[int] = doubtful_files.column(FILE).to_pylist()
    logged = [number for number in sorted(involved) if has_logs(request.candidates[number])]
    if not logged:
        return hits
    names = [name for name in hits.columns if name not in (FILES, KEY_PARTITIONS)]
    ordered = by_age(request.candidates, involved)
    table = pa.table(
        {
            FILE: pa.array(ordered, pa.int32()),
            KEY_PARTITION: pa.array([request.candidates[number].partition for number in ordered], pa.string()),
            "#alive": pa.array([not has_logs(request.candidates[number]) for number in ordered], pa.bool_()),
            "#age": pa.array(range(len(ordered)), pa.int32()),
        }
    )
    tasks = [KeyReadTask(number, request.candidates[number]) for number in logged]
    stored = task_rows(session, _LiveKeys(request.log_reader), tasks, KEY_ROWS)
    live = stored.select(column("#stored_key").alias(RECORD_KEY), FILE, F.lit(True).alias("#row")).distinct()
    pairs = hits.where(is_doubtful).select(*names, F.explode(FILES).alias(FILE))
    candidates_alive = pairs.join(F.broadcast(session.createDataFrame(table)), FILE).join(live, [RECORD_KEY, FILE], "left")
    alive = column("#alive") | F.coalesce(column("#row"), F.lit(False))
    grouped = candidates_alive.groupBy(*names).agg(
        F.sort_array(F.collect_set(F.when(alive, column(FILE)))).alias(FILES),
        F.sort_array(F.collect_set(F.when(alive, column(KEY_PARTITION)))).alias(KEY_PARTITIONS),
        F.min(F.struct("#age", FILE, KEY_PARTITION)).alias("#newest"),
    )
    lives = F.size(FILES) > 0
    newest = column("#newest")
    settled = grouped.select(
        *names,
        F.when(lives, column(FILES)).otherwise(F.array(newest.getField(FILE))).alias(FILES),
        F.when(lives, column(KEY_PARTITIONS)).otherwise(F.array(newest.getField(KEY_PARTITION))).alias(KEY_PARTITIONS),
    )
    return persisted(hits.where(~is_doubtful).unionByName(settled.select(*hits.columns)))


@dataclass(frozen=True, slots=True)
class _LiveKeys:
    """Maps a task to the keys of the live rows of its slice."""

    reader: ReadSpec

    def __call__(self, _: int, task: KeyReadTask) -> Iterator[pa.RecordBatch]:
        assert task.candidate.slice is not None
        for keys in read_live_keys(self.reader, task.candidate.slice):
            if len(keys):
                yield key_rows(task, keys)

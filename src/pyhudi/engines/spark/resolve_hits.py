"""Of the many hits of a lookup: which of several places of a key hold a row of it (see `tasks.resolve_duplicates`).

The driver learns which file groups are in doubt, never a key.  Tasks read those of them that have logs, and a join by key says
where each key lives.  Where no key stands in several places, this costs one look at the hits, which are held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyhudi.engines.spark.distributed_lookup import HOMES, KEY_ROWS, PlaceTask, key_rows
from pyhudi.engines.spark.jobs import task_rows, translated_errors
from pyhudi.engines.spark.type_conversion import column
from pyhudi.engines.spark.worker_tasks import FILE, FILES, HOME
from pyhudi.records.meta_fields import RECORD_KEY
from pyhudi.tasks.engine_protocol import TagRequest
from pyhudi.tasks.read_slice import ReadSpec, read_live_keys
from pyhudi.tasks.resolve_duplicates import by_age, has_logs


def live_hits(session: SparkSession, hits: DataFrame, request: TagRequest, keep: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """Hits, as `look_up_many` gives them, without the places that hold no row of a key which stands in another.

    hits: held, as they are looked at twice.  keep: holds what was computed until the write ends.
    """
    if not any(has_logs(place) for place in request.places):
        return hits
    is_doubtful = F.coalesce(F.size(FILES), F.lit(0)) > 1
    with translated_errors():
        found = hits.where(is_doubtful).select(F.explode(FILES).alias(FILE)).distinct().toArrow()
    involved: list[int] = found.column(FILE).to_pylist()
    logged = [number for number in sorted(involved) if has_logs(request.places[number])]
    if not logged:
        return hits
    names = [name for name in hits.columns if name not in (FILES, HOMES)]
    ordered = by_age(request.places, involved)
    table = pa.table(
        {
            FILE: pa.array(ordered, pa.int32()),
            HOME: pa.array([request.places[number].partition for number in ordered], pa.string()),
            "#alive": pa.array([not has_logs(request.places[number]) for number in ordered], pa.bool_()),
            "#age": pa.array(range(len(ordered)), pa.int32()),
        }
    )
    tasks = [PlaceTask(number, request.places[number]) for number in logged]
    stored = task_rows(session, _LiveKeys(request.log_reader), tasks, KEY_ROWS)
    live = stored.select(column("#stored_key").alias(RECORD_KEY), FILE, F.lit(True).alias("#row")).distinct()
    pairs = hits.where(is_doubtful).select(*names, F.explode(FILES).alias(FILE))
    judged = pairs.join(F.broadcast(session.createDataFrame(table)), FILE).join(live, [RECORD_KEY, FILE], "left")
    alive = column("#alive") | F.coalesce(column("#row"), F.lit(False))
    grouped = judged.groupBy(*names).agg(
        F.sort_array(F.collect_set(F.when(alive, column(FILE)))).alias(FILES),
        F.sort_array(F.collect_set(F.when(alive, column(HOME)))).alias(HOMES),
        F.min(F.struct("#age", FILE, HOME)).alias("#newest"),
    )
    lives = F.size(FILES) > 0
    newest = column("#newest")
    settled = grouped.select(
        *names,
        F.when(lives, column(FILES)).otherwise(F.array(newest.getField(FILE))).alias(FILES),
        F.when(lives, column(HOMES)).otherwise(F.array(newest.getField(HOME))).alias(HOMES),
    )
    return keep(hits.where(~is_doubtful).unionByName(settled.select(*hits.columns)))


@dataclass(frozen=True, slots=True)
class _LiveKeys:
    """A task to the keys of the rows of its slice."""

    reader: ReadSpec

    def __call__(self, _: int, task: PlaceTask) -> Iterator[pa.RecordBatch]:
        assert task.place.slice is not None
        for keys in read_live_keys(self.reader, task.place.slice):
            if len(keys):
                yield key_rows(task, keys)

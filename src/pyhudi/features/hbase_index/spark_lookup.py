"""Asking index HBASE where the keys of a DataFrame stand: `features.hbase_index.hbase_tasks`, in tasks on the cluster.

Keys of which the index knows nothing for sure are looked for in key columns, as those of any other lookup (`lookup`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyhudi.engines.spark.distributed_lookup import HOMES, KeyTable, look_up_few, look_up_many
from pyhudi.engines.spark.jobs import parallelism, run_tasks, translated_errors
from pyhudi.engines.spark.type_conversion import column, ddl
from pyhudi.engines.spark.worker_errors import with_error_fields
from pyhudi.engines.spark.worker_tasks import FILE, FILE_ID, FILES, HOME
from pyhudi.features.hbase_index.hbase_tasks import KEYS_PER_QUESTION, ByHbase, ask_hbase, find_in_hbase
from pyhudi.records.meta_fields import RECORD_KEY
from pyhudi.tasks.engine_protocol import TagRequest
from pyhudi.tasks.tag_location import ByKeyColumns

Ints = npt.NDArray[np.int64]

_QUESTIONS_A_CORE = 2


def ask_few_of_hbase(session: SparkSession, keys: KeyTable, request: TagRequest, lookup: ByHbase) -> tuple[Ints, Ints]:
    """Pairs of a key (its number in the key table) and a place (its number in the request) that holds it."""
    distinct = pc.unique(keys.keys)
    groups = {(place.partition, place.file_id): number for number, place in enumerate(request.places)}
    wanted = max(1, min(len(distinct) // lookup.index.get_batch_size, _QUESTIONS_A_CORE * parallelism(session)))
    pieces = np.array_split(np.arange(len(distinct), dtype=np.int64), wanted)
    tasks = [_Question(lookup, distinct.take(pa.array(part)), groups) for part in pieces]
    place_of = np.full(len(distinct), -1, dtype=np.int64)
    unsure = np.zeros(len(distinct), dtype=np.bool_)
    for part, (rows, numbers, others) in zip(pieces, run_tasks(session, _run_question, tasks), strict=True):
        place_of[part[rows]] = numbers
        unsure[part[others]] = True
    # A key may have come with several partition paths; each of its rows goes where the key stands.
    code = np.asarray(pc.index_in(keys.keys, value_set=distinct), dtype=np.int64)
    found = np.flatnonzero(place_of[code] >= 0).astype(np.int64)
    rest = np.flatnonzero(unsure[code]).astype(np.int64)
    if not len(rest):
        return found, place_of[code][found]
    some = replace(keys, keys=keys.keys.take(pa.array(rest)), path_codes=keys.path_codes[rest], row_count=len(rest))
    rows, places = look_up_few(session, some, replace(request, lookup=ByKeyColumns()))
    return np.concatenate([found, rest[rows]]), np.concatenate([place_of[code][found], places])


def ask_many_of_hbase(
    session: SparkSession, rows: DataFrame, request: TagRequest, lookup: ByHbase, keep: Callable[[DataFrame], DataFrame]
) -> DataFrame:
    """Hits of all keys of the rows, as `look_up_many` of global keys.  keep: holds what was computed until the write ends."""
    asked = rows.select(RECORD_KEY).distinct()
    said = keep(asked.mapInArrow(_AskHbase(lookup), ddl((RECORD_KEY, "string"), (HOME, "string"), (FILE_ID, "string"))))
    table = pa.table(
        {
            HOME: pa.array([place.partition for place in request.places], pa.string()),
            FILE_ID: pa.array([place.file_id for place in request.places], pa.string()),
            FILE: pa.array(range(len(request.places)), pa.int32()),
        }
    )
    placed = said.join(F.broadcast(session.createDataFrame(table)), [HOME, FILE_ID], "left")
    sure = placed.where(column(FILE).isNotNull())
    hits = sure.select(RECORD_KEY, F.array(FILE).alias(FILES), F.array(HOME).alias(HOMES))
    unsure = placed.where(column(FILE).isNull()).select(RECORD_KEY)
    with translated_errors():
        if not unsure.take(1):
            return hits
    return hits.unionByName(look_up_many(session, unsure, replace(request, lookup=ByKeyColumns())).select(*hits.columns))


@dataclass(frozen=True, slots=True)
class _Question:
    """Keys for the index, and the numbers of the file groups that the table has."""

    lookup: ByHbase
    keys: pa.StringArray
    groups: dict[tuple[str, str], int]


def _run_question(question: _Question) -> tuple[Ints, Ints, Ints]:
    return find_in_hbase(question.lookup, question.keys, question.groups)


@dataclass(frozen=True, slots=True)
class _AskHbase:
    """Keys (column RECORD_KEY, distinct) to RECORD_KEY, HOME and FILE_ID of those that the index has; null for what is not
    believed.
    """

    lookup: ByHbase

    @with_error_fields
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held: list[pa.Array] = []
        for batch in batches:
            held.append(batch.column(0).cast(pa.string()))
            if sum(map(len, held)) >= KEYS_PER_QUESTION:
                yield from self._ask(held)
                held = []
        yield from self._ask(held)

    def _ask(self, held: list[pa.Array]) -> Iterator[pa.RecordBatch]:
        for said in ask_hbase(self.lookup, pa.concat_arrays([pa.array([], pa.string()), *held])):
            yield pa.record_batch(said.columns, names=[RECORD_KEY, HOME, FILE_ID])

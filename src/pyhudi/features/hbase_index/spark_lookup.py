"""Look up the keys of a DataFrame in index HBASE: `features.hbase_index.hbase_tasks`, in tasks on the cluster.

Keys without a valid entry are looked up in key columns, as in any other lookup (`lookup`).
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

from pyhudi.engines.spark.distributed_lookup import KEY_PARTITIONS, KeyTable, lookup_distributed, lookup_on_driver
from pyhudi.engines.spark.jobs import parallelism, run_tasks, translated_errors
from pyhudi.engines.spark.type_conversion import column, ddl
from pyhudi.engines.spark.worker_errors import with_error_fields
from pyhudi.engines.spark.worker_tasks import FILE, FILE_ID, FILES, KEY_PARTITION
from pyhudi.features.hbase_index.hbase_tasks import KEYS_PER_LOOKUP, find_in_hbase, lookup_in_hbase
from pyhudi.format.meta_columns import RECORD_KEY
from pyhudi.tasks.engine_protocol import TagRequest
from pyhudi.tasks.hbase_lookup import LookupInHbaseIndex
from pyhudi.tasks.tag_location import LookupByKeyColumns

Ints = npt.NDArray[np.int64]

_LOOKUPS_PER_CORE = 2


def lookup_hbase_on_driver(
    session: SparkSession, keys: KeyTable, request: TagRequest, lookup: LookupInHbaseIndex
) -> tuple[Ints, Ints]:
    """Return pairs of a key (its number in the key table) and a candidate (its number in the request) that holds it."""
    distinct = pc.unique(keys.keys)
    groups = {(place.partition, place.file_id): number for number, place in enumerate(request.candidates)}
    wanted = max(1, min(len(distinct) // lookup.index.get_batch_size, _LOOKUPS_PER_CORE * parallelism(session)))
    pieces = np.array_split(np.arange(len(distinct), dtype=np.int64), wanted)
    tasks = [_HbaseLookup(lookup, distinct.take(pa.array(part)), groups) for part in pieces]
    place_of = np.full(len(distinct), -1, dtype=np.int64)
    unsure = np.zeros(len(distinct), dtype=np.bool_)
    for part, (rows, numbers, others) in zip(pieces, run_tasks(session, _run_lookup, tasks), strict=True):
        place_of[part[rows]] = numbers
        unsure[part[others]] = True
    # A key may have several partition paths in the batch; each of its rows goes to the stored location of the key.
    code = np.asarray(pc.index_in(keys.keys, value_set=distinct), dtype=np.int64)
    located = np.flatnonzero(place_of[code] >= 0).astype(np.int64)
    rest = np.flatnonzero(unsure[code]).astype(np.int64)
    if not len(rest):
        return located, place_of[code][located]
    taken = keys.keys.take(pa.array(rest))
    some = replace(keys, keys=taken, path_codes=keys.path_codes[rest], row_counts=keys.row_counts[rest])
    rows, places = lookup_on_driver(session, some, replace(request, lookup=LookupByKeyColumns()))
    return np.concatenate([located, rest[rows]]), np.concatenate([place_of[code][located], places])


def lookup_hbase_distributed(
    session: SparkSession,
    rows: DataFrame,
    request: TagRequest,
    lookup: LookupInHbaseIndex,
    persisted: Callable[[DataFrame], DataFrame],
) -> DataFrame:
    """Return hits of all keys of the rows, as `lookup_distributed` of global keys.

    Args:
        persisted: Holds computed data until the write ends.
    """
    keys = rows.select(RECORD_KEY).distinct()
    entries = persisted(
        keys.mapInArrow(_LookupInHbase(lookup), ddl((RECORD_KEY, "string"), (KEY_PARTITION, "string"), (FILE_ID, "string")))
    )
    table = pa.table(
        {
            KEY_PARTITION: pa.array([place.partition for place in request.candidates], pa.string()),
            FILE_ID: pa.array([place.file_id for place in request.candidates], pa.string()),
            FILE: pa.array(range(len(request.candidates)), pa.int32()),
        }
    )
    located = entries.join(F.broadcast(session.createDataFrame(table)), [KEY_PARTITION, FILE_ID], "left")
    in_files = located.where(column(FILE).isNotNull())
    hits = in_files.select(RECORD_KEY, F.array(FILE).alias(FILES), F.array(KEY_PARTITION).alias(KEY_PARTITIONS))
    unlocated = located.where(column(FILE).isNull()).select(RECORD_KEY)
    with translated_errors():
        if not unlocated.take(1):
            return hits
    return hits.unionByName(
        lookup_distributed(session, unlocated, replace(request, lookup=LookupByKeyColumns())).select(*hits.columns)
    )


@dataclass(frozen=True, slots=True)
class _HbaseLookup:
    """Keys for the index, and the numbers of the file groups that the table has."""

    lookup: LookupInHbaseIndex
    keys: pa.StringArray
    groups: dict[tuple[str, str], int]


def _run_lookup(request: _HbaseLookup) -> tuple[Ints, Ints, Ints]:
    return find_in_hbase(request.lookup, request.keys, request.groups)


@dataclass(frozen=True, slots=True)
class _LookupInHbase:
    """Map distinct record keys to RECORD_KEY, HOME and FILE_ID of indexed ones; null for entries of unknown commits."""

    lookup: LookupInHbaseIndex

    @with_error_fields
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        key_arrays: list[pa.Array] = []
        for batch in batches:
            key_arrays.append(batch.column(0).cast(pa.string()))
            if sum(map(len, key_arrays)) >= KEYS_PER_LOOKUP:
                yield from self._find(key_arrays)
                key_arrays = []
        yield from self._find(key_arrays)

    def _find(self, key_arrays: list[pa.Array]) -> Iterator[pa.RecordBatch]:
        for entries in lookup_in_hbase(self.lookup, pa.concat_arrays([pa.array([], pa.string()), *key_arrays])):
            yield pa.record_batch(entries.columns, names=[RECORD_KEY, KEY_PARTITION, FILE_ID])

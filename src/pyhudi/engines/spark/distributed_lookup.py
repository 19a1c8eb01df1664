"""Look up which file groups contain the keys of a DataFrame.

By the number of incoming keys:

    few keys     collected once by the driver. Tasks on the cluster get the keys of their partition and read the key
                 columns of some of its files (`tasks.tag_location`, with key filters for a Bloom index), or get the
                 keys of some file groups of the record index and query those; the driver then knows the location of
                 each key
    many keys    a native join of the incoming keys with the key columns of the affected partitions' files; with a Bloom
                 index, files whose key range does not overlap the incoming keys are pruned first. With the record index
                 the keys are shuffled by its file groups, and each task queries its own

Both return hits: each key that exists, with the numbers of all candidates that contain it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from pyhudi.engines.spark.base_file_scan import scan_base_files
from pyhudi.engines.spark.jobs import parallelism, run_tasks, task_rows, translated_errors
from pyhudi.engines.spark.native_keys import key_column
from pyhudi.engines.spark.type_conversion import column, ddl, to_spark_schema
from pyhudi.engines.spark.worker_tasks import FILE, FILE_ID, FILES, KEY_PARTITION, LookupInRecordIndex
from pyhudi.format.meta_columns import PARTITION_PATH, RECORD_KEY
from pyhudi.format.names import is_orc
from pyhudi.metadata_table.reader.file_group_reader import MetadataPartition, PartitionReader, by_section
from pyhudi.planning.bucket_routing import Placement
from pyhudi.records.hashing import key_shards
from pyhudi.records.keys.key_spec import KeySpec
from pyhudi.records.record_merge import row_codes
from pyhudi.storage import open_storage
from pyhudi.storage.base import StorageSpec
from pyhudi.tasks.base_file_reader import MAX_KEY, MIN_KEY, footer_text, open_base_file
from pyhudi.tasks.engine_protocol import TagRequest
from pyhudi.tasks.read_slice import ReadSpec, read_live_keys
from pyhudi.tasks.resolve_duplicates import filter_live, run_live_keys
from pyhudi.tasks.tag_location import (
    CandidateIds,
    FileGroupCandidate,
    LookupByKeyColumns,
    LookupByKeyFilters,
    LookupByRecordIndex,
    TagTask,
    distinct_pairs,
    find_in_record_index,
    read_keys,
    run_tag,
    unknown_group,
)

Ints = npt.NDArray[np.int64]

FEW_KEYS = 1_000_000
FEW_KEY_BYTES = 48 << 20
"""Limits up to which the incoming keys count as few."""

KEY_PARTITIONS = "#homes"
"""Partition paths of all files that contain a key."""

_LOOKUPS_A_CORE = 4


@dataclass(frozen=True, slots=True)
class KeyTable:
    """The distinct keys of the incoming rows, on the driver.

    Attributes:
        keys: Record keys.
        paths: Distinct partition paths.
        path_codes: Index into `paths` for each key.
        row_counts: Incoming rows of each key.
    """

    keys: pa.StringArray
    paths: tuple[str, ...]
    path_codes: Ints
    row_counts: Ints

    @classmethod
    def collect(cls, rows: DataFrame) -> KeyTable:
        """Collect the keys and partition paths of rows."""
        with translated_errors():
            return cls.of(rows.select(RECORD_KEY, PARTITION_PATH).toArrow())

    @classmethod
    def of(cls, table: pa.Table) -> KeyTable:
        """From the key and the partition path of each row."""
        table = table.cast(pa.schema([(RECORD_KEY, pa.string()), (PARTITION_PATH, pa.string())]))
        codes = row_codes(table, [RECORD_KEY, PARTITION_PATH])
        _, first, row_counts = np.unique(codes, return_index=True, return_counts=True)
        distinct = table
        if len(first) < table.num_rows:
            order = np.argsort(first)
            distinct, row_counts = table.take(pa.array(first[order])), row_counts[order]
        paths = pc.dictionary_encode(distinct.column(PARTITION_PATH).combine_chunks())
        return cls(
            distinct.column(RECORD_KEY).combine_chunks(),
            tuple(paths.dictionary.to_pylist()),
            np.asarray(paths.indices, dtype=np.int64),
            row_counts,
        )

    @property
    def has_duplicates(self) -> bool:
        """Whether some (key, path) pair occurs more than once."""
        return bool((self.row_counts > 1).any())

    @property
    def keys_are_unique(self) -> bool:
        """Whether no key occurs with two partition paths."""
        return int(pc.count_distinct(self.keys).as_py()) == len(self.keys)

    def path_array(self) -> pa.StringArray:
        """The partition path of each key."""
        return pa.array(self.paths, pa.string()).take(pa.array(self.path_codes))


@dataclass(frozen=True, slots=True)
class _Lookup:
    """Some files of one partition and the keys to look up.  rows: the number of each key in the key table."""

    task: TagTask
    numbers: Ints
    keys: pa.StringArray
    rows: Ints

    def run(self) -> tuple[Ints, Ints]:
        hits = run_tag(self.task, [self.keys])[0]
        if not len(hits.row):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        # A file may contain a key twice; one pair suffices.
        rows, places = distinct_pairs(hits.row, hits.candidate)
        return self.rows[rows], self.numbers[places]


def lookup_on_driver(session: SparkSession, keys: KeyTable, request: TagRequest) -> tuple[Ints, Ints]:
    """Pairs of a key (its number in the key table) and a file (its number in the request) that contains it."""
    lookups: list[_Lookup] = []
    by_partition = request.candidates_by_partition()
    task_target = _LOOKUPS_A_CORE * parallelism(session)
    total = sum(len(numbers) for path, numbers in by_partition.items() if path is None or path in keys.paths)
    code_of = {path: code for code, path in enumerate(keys.paths)}
    for path, numbers in by_partition.items():
        if path is None:
            rows = np.arange(len(keys.keys), dtype=np.int64)
        elif path in code_of:
            rows = np.flatnonzero(keys.path_codes == code_of[path]).astype(np.int64)
        else:
            continue
        partition_keys = keys.keys if len(rows) == len(keys.keys) else keys.keys.take(pa.array(rows))
        pieces = max(1, min(len(numbers), round(task_target * len(numbers) / max(1, total))))
        for part in np.array_split(np.array(numbers, dtype=np.int64), pieces):
            lookups.append(_Lookup(request.task(part.tolist()), part, partition_keys, rows))
    # Many small partitions share tasks, because a Spark task costs more than reading a few key columns.
    bins = min(len(lookups), task_target)
    tasks = [lookups[i::bins] for i in range(bins)]
    in_this_process = isinstance(request.lookup, LookupByKeyColumns) and request.lookup.use_cache
    hits = [_run_lookups(task) for task in tasks] if in_this_process else run_tasks(session, _run_lookups, tasks)
    nothing = np.zeros(0, np.int64)
    pairs = np.concatenate([nothing, *(f[0] for f in hits)]), np.concatenate([nothing, *(f[1] for f in hits)])
    return filter_live(request, [keys.keys], [pairs], functools.partial(run_tasks, session, run_live_keys))[0]


def lookup_record_index_on_driver(
    session: SparkSession, keys: KeyTable, request: TagRequest, lookup: LookupByRecordIndex
) -> tuple[Ints, Ints]:
    """Like `lookup_on_driver`, with the record index: each task queries some of its file groups."""
    index = lookup.index
    if lookup.by_partition:
        return _query_sections(session, keys, request, index)
    distinct = pc.unique(keys.keys)
    shards = key_shards(distinct, len(index.slices))
    used = len(np.unique(shards))
    pieces = np.array_split(np.argsort(shards, kind="stable"), max(1, min(used, _LOOKUPS_A_CORE * parallelism(session))))
    tasks = [
        _RecordIndexLookup(index.narrowed(np.unique(shards[part]).tolist()), distinct.take(pa.array(part)))
        for part in pieces
        if len(part)
    ]
    numbers = CandidateIds(request.candidates)
    place_of = np.full(len(distinct), -1, dtype=np.int64)
    for part, (rows, codes, groups) in zip(pieces, run_tasks(session, _run_index_lookup, tasks), strict=False):
        place_of[part[rows]] = numbers.of(groups)[codes]
    # A key may occur with several partition paths; each of its rows goes to the stored location.
    each = place_of[np.asarray(pc.index_in(keys.keys, value_set=distinct), dtype=np.int64)]
    found_rows = np.flatnonzero(each >= 0).astype(np.int64)
    return found_rows, each[found_rows]


def _query_sections(session: SparkSession, keys: KeyTable, request: TagRequest, index: MetadataPartition) -> tuple[Ints, Ints]:
    """Like `lookup_record_index_on_driver`, with a partitioned index: each task queries some of its sections."""
    # Keys without a partition are looked up in all sections.
    if request.global_keys:
        every = np.arange(len(keys.keys), dtype=np.int64)
        lookups = [(every, replace(index, slices=slices)) for slices in by_section(index.slices)]
    else:
        rows_of = (np.flatnonzero(keys.path_codes == code).astype(np.int64) for code in range(len(keys.paths)))
        lookups = [(rows, index.section(path)) for rows, path in zip(rows_of, keys.paths, strict=True)]
    lookups = [(rows, section) for rows, section in lookups if section.slices]
    if not lookups:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    bins = min(len(lookups), _LOOKUPS_A_CORE * parallelism(session))
    dealt = [lookups[number::bins] for number in range(bins)]
    tasks = [[_RecordIndexLookup(section, keys.keys.take(pa.array(rows))) for rows, section in part] for part in dealt]
    numbers = CandidateIds(request.candidates)
    found, places = [], []
    for part, answers in zip(dealt, run_tasks(session, _run_index_lookups, tasks), strict=True):
        for (rows, _), (at, codes, groups) in zip(part, answers, strict=True):
            found.append(rows[at])
            places.append(numbers.of(groups)[codes])
    return np.concatenate(found), np.concatenate(places)


def lookup_record_index_distributed(
    session: SparkSession, rows: DataFrame, request: TagRequest, lookup: LookupByRecordIndex
) -> DataFrame:
    """Like `lookup_distributed` for global keys, with the record index; the file number is null for an unknown group.

    A shuffle brings the keys of a file group of the index into one task, sorted by group. With a partitioned index each
    key is looked up within its partition, and the hits include PARTITION_PATH.
    """
    within = lookup.by_partition and not request.global_keys
    names = [RECORD_KEY, PARTITION_PATH] if within else [RECORD_KEY]
    count = max(1, len(lookup.index.slices))
    shard = shard_column(count)
    tasks = min(count, _LOOKUPS_A_CORE * parallelism(session))
    distinct_keys = rows.select(*names).distinct().select(*names, shard.alias("#shard"))
    if within:
        by_shard = distinct_keys.repartition(tasks, PARTITION_PATH, "#shard").sortWithinPartitions(PARTITION_PATH, "#shard")
    else:
        by_shard = distinct_keys.repartitionById(tasks, F.pmod("#shard", F.lit(tasks))).sortWithinPartitions("#shard")
    job = LookupInRecordIndex(lookup.index, within)
    located = by_shard.select(*names).mapInArrow(job, ddl((RECORD_KEY, "string"), (KEY_PARTITION, "string"), (FILE_ID, "string")))
    table = pa.table(
        {
            KEY_PARTITION: pa.array([place.partition for place in request.candidates], pa.string()),
            FILE_ID: pa.array([place.file_id for place in request.candidates], pa.string()),
            FILE: pa.array(range(len(request.candidates)), pa.int32()),
        }
    )
    placed = located.join(F.broadcast(session.createDataFrame(table)), [KEY_PARTITION, FILE_ID], "left")
    hits = placed.select(RECORD_KEY, FILE_ID, F.array(FILE).alias(FILES), F.array(KEY_PARTITION).alias(KEY_PARTITIONS))
    return hits.withColumn(PARTITION_PATH, F.element_at(KEY_PARTITIONS, 1)) if within else hits


def check_index_groups(hits: DataFrame) -> DataFrame:
    """Convert hits of `lookup_record_index_distributed` to those of `lookup_distributed`.

    Raises:
        TableState: The index refers to a missing file group.
    """
    with translated_errors():
        lost = (
            hits.where(F.element_at(FILES, 1).isNull())
            .select(F.element_at(KEY_PARTITIONS, 1).alias(KEY_PARTITION), FILE_ID)
            .take(1)
        )
    if lost:
        raise unknown_group(lost[0][KEY_PARTITION], lost[0][FILE_ID])
    return hits.drop(FILE_ID, *((KEY_PARTITIONS,) if PARTITION_PATH in hits.columns else ()))


def shard_column(count: int) -> Column:
    """The file group of the record index for each row's key."""

    def shards(texts: pa.Array) -> pa.Array:
        return pa.array(key_shards(texts.cast(pa.string()), count), pa.int32())

    return _column_of(shards, RECORD_KEY)


def cell_column(layout: Placement, keys: KeySpec) -> Column:
    """The cell of each row's key."""

    def cells(texts: pa.Array, paths: pa.Array) -> pa.Array:
        return pa.array(layout.cells_for_keys(keys, texts.cast(pa.string()), paths.cast(pa.string())), pa.int32())

    return _column_of(cells, RECORD_KEY, PARTITION_PATH)


def _column_of(function: Callable[..., pa.Array], *columns: str) -> Column:
    """An int column computed by an Arrow function of columns."""
    # The overloads of the stubs define functions over pa.Array under another name.
    of_columns: Callable[..., Column] = arrow_udf(function, "int")  # type: ignore[call-overload]
    return of_columns(*columns)


@dataclass(frozen=True, slots=True)
class _RecordIndexLookup:
    """Keys for some file groups of the record index."""

    index: MetadataPartition
    keys: pa.StringArray


def _run_index_lookup(request: _RecordIndexLookup) -> tuple[Ints, Ints, tuple[tuple[str, str], ...]]:
    return find_in_record_index(PartitionReader(request.index), request.keys)


def _run_index_lookups(requests: list[_RecordIndexLookup]) -> list[tuple[Ints, Ints, tuple[tuple[str, str], ...]]]:
    return [_run_index_lookup(request) for request in requests]


def lookup_distributed(session: SparkSession, rows: DataFrame, request: TagRequest) -> DataFrame:
    """Hits of all keys of the rows.

    Columns: RECORD_KEY; PARTITION_PATH unless the keys are global; FILES (array of int, sorted); KEY_PARTITIONS for
    global keys (array of string, sorted).
    """
    names = [RECORD_KEY] if request.global_keys else [RECORD_KEY, PARTITION_PATH]
    incoming_keys = rows.select(*names)
    numbers = [number for number, place in enumerate(request.candidates) if place.has_base]
    if isinstance(request.lookup, LookupByKeyFilters) and request.lookup.prune_by_ranges:
        numbers = _files_in_range(session, incoming_keys, request)
    frames = [frame for frame in (load_stored_keys(session, request, numbers), log_keys(session, request)) if frame is not None]
    if not frames:
        none = incoming_keys.limit(0).withColumn(FILES, F.lit(None).cast("array<int>"))
        return none.withColumn(KEY_PARTITIONS, F.lit(None).cast("array<string>")) if request.global_keys else none
    stored = functools.reduce(DataFrame.unionByName, frames)
    on = incoming_keys[RECORD_KEY] == stored["#stored_key"]
    if not request.global_keys:
        on = on & (incoming_keys[PARTITION_PATH] == stored[KEY_PARTITION])
    hits = stored.join(incoming_keys.distinct(), on)
    partition_lists = [F.sort_array(F.collect_set(KEY_PARTITION)).alias(KEY_PARTITIONS)] if request.global_keys else []
    return hits.groupBy(*names).agg(F.sort_array(F.collect_set(FILE)).alias(FILES), *partition_lists)


def load_stored_keys(session: SparkSession, request: TagRequest, numbers: Sequence[int]) -> DataFrame | None:
    """The keys in base files: `#stored_key`, KEY_PARTITION and FILE (its number).  None without files."""
    if not numbers:
        return None
    of_orc = [number for number in numbers if is_orc(request.candidates[number].base.path)]
    scanned = _scanned_keys(session, request, [number for number in numbers if number not in set(of_orc)])
    if not of_orc:
        return scanned
    spec = request.spec
    tasks = [KeyReadTask(number, request.candidates[number]) for number in of_orc]
    read = task_rows(session, _BaseKeys(spec.storage, spec.keys, spec.populate_meta_fields), tasks, KEY_ROWS)
    return read if scanned is None else scanned.unionByName(read)


def _scanned_keys(session: SparkSession, request: TagRequest, numbers: Sequence[int]) -> DataFrame | None:
    """Like `load_stored_keys`, for Parquet files, with Spark's own scan."""
    if not numbers:
        return None
    storage = open_storage(request.spec.storage)
    places = [request.candidates[number] for number in numbers]
    spec = request.spec
    if spec.populate_meta_fields:
        schema, key = pa.schema([(RECORD_KEY, pa.string())]), column(RECORD_KEY)
    else:
        heads = {name.split(".")[0] for name in spec.keys.record_fields}
        schema = pa.schema([field for field in spec.data_schema if field.name in heads])
        key = key_column(spec.keys, schema)
    table = pa.table(
        {
            "#name": pa.array([place.base.name.text for place in places], pa.string()),
            KEY_PARTITION: pa.array([place.partition for place in places], pa.string()),
            FILE: pa.array(list(numbers), pa.int32()),
        }
    )
    paths = [place.base.path for place in places]
    scan = scan_base_files(session, storage, to_spark_schema(schema), paths, verify_pages=True)
    # `_metadata.file_name` is not available if the session reads Parquet as a data source of version 2.
    named = scan.select(key.alias("#stored_key"), F.element_at(F.split(F.input_file_name(), "/"), -1).alias("#name"))
    return named.join(F.broadcast(session.createDataFrame(table)), "#name").select("#stored_key", KEY_PARTITION, FILE)


def log_keys(session: SparkSession, request: TagRequest) -> DataFrame | None:
    """Like `load_stored_keys`, for logs that may contain keys which the base files lack; None without any."""
    numbered = [number for number, place in enumerate(request.candidates) if place.logs]
    if not numbered:
        return None
    tasks = [KeyReadTask(number, request.candidates[number]) for number in numbered]
    return task_rows(session, _LogKeys(request.log_reader), tasks, KEY_ROWS)


KEY_ROWS = ddl(("#stored_key", "string"), (KEY_PARTITION, "string"), (FILE, "int"))
"""Layout of stored keys with their location, as tasks return them."""


@dataclass(frozen=True, slots=True)
class KeyReadTask:
    """A candidate whose keys are read.  number: its number in the request."""

    number: int
    candidate: FileGroupCandidate


@dataclass(frozen=True, slots=True)
class _LogKeys:
    """Maps a task to the keys of its logs."""

    reader: ReadSpec

    def __call__(self, _: int, task: KeyReadTask) -> Iterator[pa.RecordBatch]:
        for keys in read_live_keys(self.reader, task.candidate.log_slice):
            if len(keys):
                yield key_rows(task, keys)


@dataclass(frozen=True, slots=True)
class _BaseKeys:
    """Maps a task to the keys of its base file."""

    storage: StorageSpec
    keys: KeySpec
    populate_meta_fields: bool

    def __call__(self, _: int, task: KeyReadTask) -> Iterator[pa.RecordBatch]:
        path = task.candidate.base.path
        yield key_rows(
            task, read_keys(open_storage(self.storage), path, self.keys, populate_meta_fields=self.populate_meta_fields)
        )


def key_rows(task: KeyReadTask, keys: pa.Array) -> pa.RecordBatch:
    """Keys of a candidate, in the columns of KEY_ROWS."""
    home = pa.repeat(pa.scalar(task.candidate.partition, pa.string()), len(keys))
    number = pa.repeat(pa.scalar(task.number, pa.int32()), len(keys))
    return pa.record_batch([keys.cast(pa.string()), home, number], names=["#stored_key", KEY_PARTITION, FILE])


def _run_lookups(lookups: list[_Lookup]) -> tuple[Ints, Ints]:
    hits = [lookup.run() for lookup in lookups]
    return np.concatenate([f[0] for f in hits]), np.concatenate([f[1] for f in hits])


@dataclass(frozen=True, slots=True)
class _RangeTask:
    """Files whose key ranges are read."""

    storage: StorageSpec
    paths: tuple[str, ...]


def _run_ranges(task: _RangeTask) -> list[tuple[str | None, str | None]]:
    storage = open_storage(task.storage)
    ranges = []
    for path in task.paths:
        with open_base_file(storage, path) as file:
            ranges.append((footer_text(file.metadata, MIN_KEY), footer_text(file.metadata, MAX_KEY)))
    return ranges


def _files_in_range(session: SparkSession, key_ranges: DataFrame, request: TagRequest) -> list[int]:
    """Numbers of the candidates whose key range (known, or read from footers) overlaps the incoming keys."""
    bounds = key_ranges.groupBy() if request.global_keys else key_ranges.groupBy(PARTITION_PATH)
    with translated_errors():
        found = bounds.agg(F.min(RECORD_KEY).alias("least"), F.max(RECORD_KEY).alias("greatest")).collect()
    key_bounds = {None if request.global_keys else row[PARTITION_PATH]: (row["least"], row["greatest"]) for row in found}
    known = [place.key_range for place in request.candidates]
    unknown = [number for number, key_range in enumerate(known) if key_range is None]
    bins = min(len(unknown), _LOOKUPS_A_CORE * parallelism(session))
    numbered = [unknown[start::bins] for start in range(bins)]
    tasks = [_RangeTask(request.spec.storage, tuple(request.candidates[n].base.path for n in numbers)) for numbers in numbered]
    bounds_of: dict[int, tuple[str | None, str | None]] = {n: found for n, found in enumerate(known) if found is not None}
    for numbers, ranges in zip(numbered, run_tasks(session, _run_ranges, tasks), strict=True):
        bounds_of.update(zip(numbers, ranges, strict=True))
    overlapping: list[int] = []
    for number, (least, greatest) in sorted(bounds_of.items()):
        keys = key_bounds.get(None if request.global_keys else request.candidates[number].partition)
        if keys is not None and _overlap(keys[0], keys[1], least, greatest):
            overlapping.append(number)
    return overlapping


def _overlap(first: str | None, last: str | None, least: str | None, greatest: str | None) -> bool:
    if first is None or last is None:
        return False
    if least is None or greatest is None:
        return True
    if any(character >= "\ud800" for text in (first, last, least, greatest) for character in text):
        # Java orders these characters differently from UTF-8, so their ranges are not comparable.
        return True
    return first <= greatest and least <= last

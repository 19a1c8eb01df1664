"""Infer a timeline from the names and rows of data files.

    instants      one for each request time in the names of readable files
    actions       logs imply a delta commit; of a merge-on-read table so do base files that hold rows of their own
                  instant, or are the first of their file group, and others are compactions; of a copy-on-write table
                  each is a commit
    replaced      a file group whose rows exist in one that began after its last file, by key and sequence number: a
                  clustering has copied them there. The instant that began the later one becomes a replace commit
    columns       of a table with column ids: the schema history, stored next to the timeline, has each schema with the
                  instant that created it. An instant stores the newest of its time if its files have these columns; one
                  that wrote no file changed only the columns
    completion    as recorded in the metadata table; else when the last file of the instant was stored; else one tick
                  after its request, if all files are younger than the last request, because then they were copied

Not recoverable: file groups that an overwrite or the deletion of a partition replaced, whose rows exist nowhere else;
which plans were pending; cleans, rollbacks and savepoints; and numbers of rows in logs.

Pure: facts about files in, a plan out.  Source: docs/formats/timeline.md, "Rebuilding a timeline".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.format.actions.commit_metadata import (
    LATEST_SCHEMA_KEY,
    NO_PREVIOUS_COMMIT,
    SCHEMA_KEY,
    CommitMetadata,
    Operation,
    WriteStat,
)
from pyhudi.format.arrow_to_avro import arrow_to_avro
from pyhudi.format.avro_to_arrow import avro_to_arrow
from pyhudi.format.instants import Action, Instant, State, format_instant_time, shift_instant_time
from pyhudi.format.meta_columns import with_meta_fields, without_meta_fields
from pyhudi.format.names import BaseFileName, LogFileName
from pyhudi.format.schema_history import VersionedSchema, encode_schema
from pyhudi.records.schema_on_read.column_changes import arrow_from_ids
from pyhudi.records.schema_on_read.column_ids import reconciled, same_columns

Group = tuple[str, str]
"""Partition and file id."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One readable data file.  The counts are of a base file: all rows, and those that its own instant wrote."""

    path: str
    partition: str
    name: BaseFileName | LogFileName
    size_bytes: int
    rows: int = 0
    rows_written_by_instant: int = 0
    schema: str = ""

    @property
    def group(self) -> Group:
        return self.partition, self.name.file_id

    @property
    def instant_time(self) -> str:
        return self.name.instant_time

    @property
    def is_log(self) -> bool:
        """Whether it is a log, including change logs."""
        return isinstance(self.name, LogFileName)

    @property
    def is_cdc(self) -> bool:
        return isinstance(self.name, LogFileName) and self.name.is_cdc


@dataclass(frozen=True, slots=True)
class RebuiltInstant:
    """A completed instant, and the content of its commit."""

    instant: Instant
    metadata: CommitMetadata


def completion_times(stored_ms: Mapping[str, int], metadata_times: Mapping[str, str], zone: tzinfo) -> dict[str, str]:
    """Map request time to completion time.  stored_ms: when the last file of each instant was stored."""
    stored = {time: format_instant_time(ms, zone) for time, ms in stored_ms.items()}
    # Unless the files were copied, those of all but the last instants are older than the last request.
    copied = len(stored) > 1 and min(stored.values()) > max(stored)
    times = {}
    for time in stored:
        completion = metadata_times.get(time) or ("" if copied else stored[time])
        times[time] = completion if completion > time else shift_instant_time(time[:17], 1, UTC)
    return times


@dataclass(frozen=True, slots=True)
class RecoveredColumns:
    """schemas: with ids, by version, of a table with column ids; {} otherwise. table_name: for schemas that no file has."""

    schemas: Mapping[int, VersionedSchema]
    table_name: str

    def schema_only_instants(self, completions: Mapping[str, str], written: Iterable[str]) -> list[str]:
        """The instants that changed columns, completed and wrote no file."""
        return sorted({str(version) for version in self.schemas if version} & completions.keys() - set(written))

    def extra(self, time: str, text: str, operation: Operation, before: str) -> dict[str, str]:
        """Return the schema entries of an instant's commit. text: the schema of its files, '' without one; before: of
        the previous instant.
        """
        version = max((version for version in self.schemas if version <= int(time)), default=0)
        if not version:
            return {SCHEMA_KEY: text or before}
        held = self.schemas[version]
        if text and operation.sets_schema:
            known = reconciled(held, with_meta_fields(avro_to_arrow(text)), int(time))
            if not same_columns(held, known):
                # A write by names, which left no schema with ids.
                return {SCHEMA_KEY: text}
        own = text or arrow_to_avro(with_meta_fields(without_meta_fields(arrow_from_ids(held))), self.table_name)
        return {SCHEMA_KEY: own, LATEST_SCHEMA_KEY: encode_schema(held)}


def plan_instants(
    files: Iterable[DataFile],
    completions: Mapping[str, str],
    replaced: Mapping[Group, str],
    columns: RecoveredColumns,
    *,
    is_cow: bool,
) -> tuple[RebuiltInstant, ...]:
    """Return the instants that wrote these files, and those that changed only columns, oldest first.

    replaced: group -> the instant that replaced it.
    """
    groups: dict[Group, list[DataFile]] = {}
    for file in files:
        groups.setdefault(file.group, []).append(file)
    by_instant: dict[str, list[tuple[DataFile, DataFile | None]]] = {}
    for members in groups.values():
        ordered = sorted(members, key=lambda file: (file.instant_time, file.is_log, file.path))
        bases = [file for file in ordered if not file.is_log]
        for file in ordered:
            before = [base for base in bases if base.instant_time < file.instant_time]
            by_instant.setdefault(file.instant_time, []).append((file, before[-1] if before else None))
    begun = {group: min(file.instant_time for file in members) for group, members in groups.items()}
    instants: list[RebuiltInstant] = []
    schema = ""
    for time in columns.schema_only_instants(completions, by_instant):
        by_instant[time] = []
    for time in sorted(by_instant):
        own = by_instant[time]
        text = next((file.schema for file, _ in own if file.schema), "")
        gone: dict[str, tuple[str, ...]] = {}
        for (partition, file_id), by in sorted(replaced.items()):
            if by == time:
                gone[partition] = (*gone.get(partition, ()), file_id)
        compacts = (
            bool(own)
            and not is_cow
            and all(not file.is_log and not file.rows_written_by_instant and begun[file.group] < time for file, _ in own)
        )
        if gone:
            action = Action.REPLACECOMMIT
        elif is_cow or compacts:
            action = Action.COMMIT
        else:
            action = Action.DELTACOMMIT
        operation = Operation.CLUSTER if gone else Operation.COMPACT if compacts else Operation.UNKNOWN
        operation = operation if own else Operation.ALTER_SCHEMA
        extra = columns.extra(time, text, operation, schema)
        schema = extra[SCHEMA_KEY]
        instants.append(
            RebuiltInstant(
                Instant(time, action, State.COMPLETED, completions[time]),
                CommitMetadata(
                    partition_to_write_stats=_stats(own),
                    compacted=compacts and not gone,
                    extra_metadata=extra,
                    operation_type=operation.value,
                    partition_to_replace_file_ids=gone or None,
                ),
            )
        )
    return _with_a_schema(instants)


def _with_a_schema(created: Sequence[RebuiltInstant]) -> tuple[RebuiltInstant, ...]:
    """Mark the last instant as a write if all are table services: readers take the columns of a table from a write."""
    if not created or any(instant.metadata.operation.sets_schema for instant in created):
        return tuple(created)
    last = created[-1]
    metadata = CommitMetadata(
        partition_to_write_stats=last.metadata.partition_to_write_stats,
        extra_metadata=last.metadata.extra_metadata,
        operation_type=Operation.UNKNOWN.value,
        partition_to_replace_file_ids=last.metadata.partition_to_replace_file_ids,
    )
    return (*created[:-1], RebuiltInstant(last.instant, metadata))


def recovered_replacements(spans: Mapping[Group, tuple[str, str]], rows: Mapping[Group, pa.Table]) -> dict[Group, str]:
    """Map groups of one partition, whose rows exist in a group that began after their last file, to the instant that began it.

    spans: the first and the last instant of each group's files. rows: what identifies the rows of each group's newest
    base file, in the same columns.
    """
    order = sorted(rows, key=lambda group: spans[group])
    if len(order) < 2:
        return {}
    several = pa.concat_tables([rows[group] for group in order])
    owner = np.repeat(np.arange(len(order)), [rows[group].num_rows for group in order])
    text = pc.binary_join_element_wise(
        *(column.cast(pa.large_string()) for column in several.columns), pa.scalar("\x00", pa.large_string())
    )
    codes = pc.dictionary_encode(text).combine_chunks().indices.to_numpy() if len(text) else np.zeros(0, dtype=np.int64)
    pairs = np.unique(np.stack([codes, owner], axis=1), axis=0)
    # Sorted by row and then by age, so that a group that shares a row with an older one directly follows it.
    shared = np.flatnonzero(pairs[1:, 0] == pairs[:-1, 0])
    edges = np.unique(np.stack([pairs[shared, 1], pairs[shared + 1, 1]], axis=1), axis=0)
    replacements: dict[Group, str] = {}
    for older, newer in edges.tolist():
        began = spans[order[newer]][0]
        if spans[order[older]][1] < began:
            replacements[order[older]] = min(replacements.get(order[older], began), began)
    return replacements


def _stats(files: Sequence[tuple[DataFile, DataFile | None]]) -> dict[str, tuple[WriteStat, ...]]:
    changes: dict[Group, dict[str, int]] = {}
    for file, _ in files:
        if file.is_cdc:
            changes.setdefault(file.group, {})[file.path] = file.size_bytes
    by_partition: dict[str, list[WriteStat]] = {}
    for file, before in sorted(files, key=lambda pair: pair[0].path):
        if file.is_cdc:
            continue
        name = file.name
        if isinstance(name, LogFileName):
            stat = WriteStat(
                prev_commit=name.instant_time,
                log_version=name.version,
                log_offset=0,
                base_file="",
                log_files=(name.text,),
                file_id=name.file_id,
                path=file.path,
                partition_path=file.partition,
                total_write_bytes=file.size_bytes,
                file_size_in_bytes=file.size_bytes,
                cdc_stats=changes.get(file.group),
            )
        else:
            stat = WriteStat(
                file_id=name.file_id,
                path=file.path,
                partition_path=file.partition,
                prev_commit=NO_PREVIOUS_COMMIT if before is None else before.instant_time,
                prev_base_file=None if before is None else before.name.text,
                num_writes=file.rows,
                num_inserts=file.rows_written_by_instant if before is None else 0,
                num_update_writes=0 if before is None else file.rows_written_by_instant,
                total_write_bytes=file.size_bytes,
                file_size_in_bytes=file.size_bytes,
                cdc_stats=changes.get(file.group),
            )
        by_partition.setdefault(file.partition, []).append(stat)
    return {partition: tuple(stats) for partition, stats in sorted(by_partition.items())}

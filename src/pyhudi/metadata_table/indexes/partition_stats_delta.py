"""Incremental update of partition ranges from the stored ranges and the files a commit adds and removes.
Format: docs/formats/metadata-table.md, "Which record counts".

    stored             the range of each column over the files of a partition before the commit
    leaving, arriving  files that the commit removes from, and adds to, the newest slices
    incremental        the stored range without leaving and with arriving files. The cost depends on the change, not on
                       the size of the partition. If a leaving file may hold a bound, all files of the partition are
                       evaluated

A stored range is usable if it is tight and PyHudi wrote it with all files of the partition visible. Hudi also marks
ranges as tight when it did not know all files, and ignores files that lack a column. `sole_writer` provides the instant
since which only PyHudi has changed the table. The ranges of a partition with a file of a later-requested commit were
written by that commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.metadata_table.codecs.metadata_partitions import COLUMN_STATS, PARTITION_STATS
from pyhudi.metadata_table.indexes.index_events import CommitPublishing
from pyhudi.metadata_table.indexes.stored_ranges import have_all, ranges_in
from pyhudi.metadata_table.metadata_keys import column_stats_keys, file_hashes, partition_stats_key
from pyhudi.metadata_table.reader.index_lookups import find_stats
from pyhudi.metadata_table.reader.metadata_listing import file_ids
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.records.column_statistics import ColumnRange, exchanged_range

_INSTANT = r"_(?P<instant>\d+)\.[A-Za-z]"

Ranges = Mapping[str, ColumnRange]


def incremental_ranges(
    commit: CommitPublishing,
    partitions: Sequence[str],
    types: Mapping[str, pa.DataType],
    current: Mapping[tuple[str, str], Ranges],
) -> dict[str, Ranges]:
    """Return the new ranges of those partitions whose stored ranges can be updated incrementally.

    Args:
        partitions: The partitions it touches.
        types: Types of the columns.
        current: (partition, name) -> ranges of the commit's own files.
    """
    since = commit.sole_writer.since
    if since is None or not {COLUMN_STATS, PARTITION_STATS} <= set(commit.reader.partitions):
        return {}
    exchanged = _changed_files(commit, partitions, since)
    if not exchanged:
        return {}
    stored = _stored_partition_ranges(commit.reader, tuple(exchanged), types)
    exchanged = {p: changes for p, changes in exchanged.items() if have_all(stored.get(p), types)}
    file_ranges = _stored_file_ranges(commit.reader, {p: leaving_names for p, (leaving_names, _) in exchanged.items()}, types)
    result: dict[str, Ranges] = {}
    for partition, (leaving_names, arriving_names) in exchanged.items():
        leaving = [file_ranges.get((partition, name)) for name in leaving_names]
        # A log file that holds only deletes has no ranges, and adds nothing. For leaving files this case is not
        # detectable.
        arriving = [current.get((partition, name)) for name in arriving_names]
        arriving = [ranges for ranges in arriving if ranges is None or ranges]
        updated = _update_ranges(stored[partition], leaving, arriving, types)
        if updated is not None:
            result[partition] = updated
    return result


def _update_ranges(
    stored: Ranges, leaving: Sequence[Ranges | None], arriving: Sequence[Ranges | None], columns: Iterable[str]
) -> Ranges | None:
    result: dict[str, ColumnRange] = {}
    for column in columns:
        leaving_ranges = [None if ranges is None else ranges.get(column) for ranges in leaving]
        arriving_ranges = [None if ranges is None else ranges.get(column) for ranges in arriving]
        updated = exchanged_range(stored[column], leaving_ranges, arriving_ranges)
        if updated is None:
            return None
        result[column] = updated
    return result


def _changed_files(commit: CommitPublishing, partitions: Sequence[str], since: str) -> dict[str, tuple[list[str], list[str]]]:
    """Partition -> names of leaving and arriving files, for partitions whose ranges PyHudi wrote as the sole writer."""
    touched = commit.file_groups()
    rows = commit.listed(partitions)
    touched_keys = pa.array([f"{p}/{file_id}" for p in partitions for file_id in touched[p]], pa.string())
    keys = pc.binary_join_element_wise(rows.column("partition"), file_ids(rows.column("name")), "/")
    is_touched = pc.is_in(keys, value_set=touched_keys)
    # If every file group is touched, no file is saved, and few need reading.
    others = frozenset(pc.unique(rows.column("partition").filter(pc.invert(is_touched))).to_pylist())
    if not others:
        return {}
    instants = pc.struct_field(pc.extract_regex(rows.column("name"), _INSTANT), "instant")
    since_sole_writer = pc.fill_null(pc.greater_equal(instants, since), False)
    trusted = frozenset(pc.unique(rows.column("partition").filter(since_sole_writer)).to_pylist())
    # The file id in a name ends at its first underscore.
    selected = [p for p in partitions if p in trusted & others and not any("_" in file_id for file_id in touched[p])]
    rows = rows.filter(pc.and_(is_touched, pc.is_in(rows.column("partition"), value_set=pa.array(selected, pa.string()))))
    listed: dict[str, dict[str, int]] = {partition: {} for partition in selected}
    for partition, name, size_bytes in zip(*(rows.column(i).to_pylist() for i in range(3)), strict=True):
        listed[partition][name] = size_bytes
    before = commit.select_latest(listed, exists=False)
    after = commit.select_latest(commit.with_added(listed), exists=True)
    result: dict[str, tuple[list[str], list[str]]] = {}
    for partition in selected:
        names_before, names_after = ({info.name for info in live[partition]} for live in (before, after))
        result[partition] = (sorted(names_before - names_after), sorted(names_after - names_before))
    return result


def _stored_partition_ranges(
    reader: MetadataTable, partitions: Sequence[str], types: Mapping[str, pa.DataType]
) -> dict[str, Ranges]:
    """The stored tight ranges: partition -> column -> range."""
    keys = [partition_stats_key(column, partition) for column in types for partition in partitions]
    rows = find_stats(reader, PARTITION_STATS, pa.array(keys, pa.string()))
    tight_ranges = ranges_in(rows.filter(rows.column("is_tight")), partitions, types)
    return {partition: ranges for (partition, _), ranges in tight_ranges.items()}


def _stored_file_ranges(
    reader: MetadataTable, files: Mapping[str, Sequence[str]], types: Mapping[str, pa.DataType]
) -> dict[tuple[str, str], dict[str, ColumnRange]]:
    parts = [pa.array([], pa.string())]
    for partition, names in files.items():
        if not names:
            continue
        hashes = file_hashes(names)
        parts.extend(column_stats_keys(column, partition, hashes) for column in types)
    return ranges_in(find_stats(reader, COLUMN_STATS, pa.concat_arrays(parts)), tuple(files), types)

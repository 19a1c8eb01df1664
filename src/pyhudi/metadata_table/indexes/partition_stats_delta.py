"""Ranges of partitions carried on: from what is stored, and from the files that a commit makes and those that it ends.

    stored             the range of each column over the files of a partition, as it stood before the commit
    leaving, arriving  the files of the newest slices that go with the commit, and those that come with it
    carried            the stored range, without what leaves and with what arrives; so the work follows what the commit changes,
                       not what the partition holds.  Where a bound may go with a file, all files of the partition are asked

What is stored may be built upon when it is tight and PyHudi said it, with all of the partition's files in view.  The real Hudi
calls its ranges tight also where it could not know all files, and passes over files that lack a column.  `trust` says since when
PyHudi alone has changed the table.  A partition with a file of a commit that was requested later has had its ranges said by that
commit.

Source: docs/formats/metadata-table.md, "Which record counts".
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
    """The ranges of those partitions of the table whose stored ones can be carried on to what they are after a commit.

    partitions: that it touches; types: of the columns; current: (partition, name) -> the ranges of its own files.
    """
    since = commit.sole_writer.since
    if since is None or not {COLUMN_STATS, PARTITION_STATS} <= set(commit.reader.partitions):
        return {}
    exchanged = _exchanged(commit, partitions, since)
    stored = _stored_of_partitions(commit.reader, tuple(exchanged), types)
    exchanged = {p: found for p, found in exchanged.items() if have_all(stored.get(p), types)}
    before = _stored_of_files(commit.reader, {p: gone for p, (gone, _) in exchanged.items()}, types)
    result: dict[str, Ranges] = {}
    for partition, (gone, new) in exchanged.items():
        leaving = [before.get((partition, name)) for name in gone]
        # A log file with nothing but deletes has no ranges, and adds nothing; of what leaves it is not known to be one.
        arriving = [current.get((partition, name)) for name in new]
        arriving = [ranges for ranges in arriving if ranges is None or ranges]
        carried = _carried(stored[partition], leaving, arriving, types)
        if carried is not None:
            result[partition] = carried
    return result


def _carried(
    stored: Ranges, leaving: Sequence[Ranges | None], arriving: Sequence[Ranges | None], columns: Iterable[str]
) -> Ranges | None:
    result: dict[str, ColumnRange] = {}
    for column in columns:
        gone = [None if ranges is None else ranges.get(column) for ranges in leaving]
        new = [None if ranges is None else ranges.get(column) for ranges in arriving]
        found = exchanged_range(stored[column], gone, new)
        if found is None:
            return None
        result[column] = found
    return result


def _exchanged(commit: CommitPublishing, partitions: Sequence[str], since: str) -> dict[str, tuple[list[str], list[str]]]:
    """Partition -> names of the files that leave and arrive, of those in which PyHudi has said the ranges since it was alone."""
    touched = commit.file_groups()
    rows = commit.listed(partitions)
    instants = pc.struct_field(pc.extract_regex(rows.column("name"), _INSTANT), "instant")
    late = pc.fill_null(pc.greater_equal(instants, since), False)
    trusted = frozenset(pc.unique(rows.column("partition").filter(late)).to_pylist())
    # What a name begins with ends at its first underscore.
    firm = [p for p in partitions if p in trusted and not any("_" in file_id for file_id in touched[p])]
    wanted = pa.array([f"{p}/{file_id}" for p in firm for file_id in touched[p]], pa.string())
    keys = pc.binary_join_element_wise(rows.column("partition"), file_ids(rows.column("name")), "/")
    is_touched = pc.is_in(keys, value_set=wanted)
    # Where every file group is touched there is nothing to pass by, and little to read.
    others = frozenset(pc.unique(rows.column("partition").filter(pc.invert(is_touched))).to_pylist())
    chosen = [p for p in firm if p in others]
    rows = rows.filter(pc.and_(is_touched, pc.is_in(rows.column("partition"), value_set=pa.array(chosen, pa.string()))))
    listed: dict[str, dict[str, int]] = {partition: {} for partition in chosen}
    for partition, name, size_bytes in zip(*(rows.column(i).to_pylist() for i in range(3)), strict=True):
        listed[partition][name] = size_bytes
    before = commit.select_latest(listed, exists=False)
    after = commit.select_latest(commit.with_added(listed), exists=True)
    result: dict[str, tuple[list[str], list[str]]] = {}
    for partition in chosen:
        stood, stands = ({info.name for info in live[partition]} for live in (before, after))
        result[partition] = (sorted(stood - stands), sorted(stands - stood))
    return result


def _stored_of_partitions(
    reader: MetadataTable, partitions: Sequence[str], types: Mapping[str, pa.DataType]
) -> dict[str, Ranges]:
    """Partition -> column -> range, of those that are tight."""
    keys = [partition_stats_key(column, partition) for column in types for partition in partitions]
    rows = find_stats(reader, PARTITION_STATS, pa.array(keys, pa.string()))
    found = ranges_in(rows.filter(rows.column("is_tight")), partitions, types)
    return {partition: ranges for (partition, _), ranges in found.items()}


def _stored_of_files(
    reader: MetadataTable, files: Mapping[str, Sequence[str]], types: Mapping[str, pa.DataType]
) -> dict[tuple[str, str], dict[str, ColumnRange]]:
    parts = [pa.array([], pa.string())]
    for partition, names in files.items():
        if not names:
            continue
        hashes = file_hashes(names)
        parts.extend(column_stats_keys(column, partition, hashes) for column in types)
    return ranges_in(find_stats(reader, COLUMN_STATS, pa.concat_arrays(parts)), tuple(files), types)

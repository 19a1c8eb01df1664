"""Write the log files that one task appends to a file group: blocks in order, a next version of the file at the size limit.

Each file has its own statistics and column ranges.

Source: docs/formats/log-file.md; docs/formats/writing.md, "Files of a write".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pyarrow as pa

from pyhudi.format.actions.commit_metadata import WriteStat
from pyhudi.format.log.framing import Block, LogFraming
from pyhudi.format.names import LogFileName, MarkerType
from pyhudi.format.paths import join_path
from pyhudi.records.column_statistics import RangeCollector
from pyhudi.records.event_time_watermarks import EventTimes
from pyhudi.storage.base import Storage
from pyhudi.storage.markers import Markers
from pyhudi.tasks.early_conflict_detection import EarlyConflicts
from pyhudi.tasks.file_stats import FileIndexing, IndexedFile, log_ranges
from pyhudi.tasks.write_tasks import WriteStatus


@dataclass(frozen=True, slots=True)
class BlockRows:
    """A block to be written, and its content. rows: as stored, None if it has none; delete_count: its deleted keys."""

    block: Block
    rows: pa.RecordBatch | None = None
    delete_count: int = 0


@dataclass(frozen=True, slots=True)
class LogWriteSpec:
    """Statistics to collect about log files, and checks before their write.

    Attributes:
        indexing: For the metadata table, None without one.
        early: Early conflict detection.
        written_by: The instant that writes, if file names hold another.
        event_time: The column with event times, None if they are not recorded.
        marker_lists: As in `FileSettings`.
    """

    indexing: FileIndexing | None = None
    early: EarlyConflicts | None = None
    written_by: str | None = None
    event_time: str | None = None
    marker_lists: bool = False


def write_log_files(
    storage: Storage,
    partition: str,
    first: LogFileName,
    blocks: Iterable[BlockRows],
    limit_bytes: int | None,
    spec: LogWriteSpec,
) -> tuple[WriteStatus, ...]:
    """Write blocks, at least one, to a log file, after its marker, and return the statistics.

    limit_bytes: a file of that size receives no further block, and the next block begins the file's next version; None:
    one file receives them all.
    """
    markers, statuses = Markers(storage, spec.written_by or first.instant_time, in_lists=spec.marker_lists), []
    remaining, name = iter(blocks), first
    block = next(remaining, None)
    while block is not None:
        path, framing = join_path(partition, name.text), LogFraming()
        collector = RangeCollector(spec.indexing.columns) if spec.indexing and spec.indexing.columns else None
        times = EventTimes(spec.event_time)
        size_bytes = row_count = delete_count = 0
        markers.create(path, MarkerType.CREATE)
        if spec.early is not None:
            spec.early.check(storage, [(partition, name.file_id)])
        with storage.open_output(path) as sink:
            is_full = False
            while block is not None and not is_full:
                for piece in framing.add(block.block):
                    sink.write(piece)
                    size_bytes += len(piece)
                delete_count += block.delete_count
                if block.rows is not None:
                    row_count += block.rows.num_rows
                    times.add(block.rows)
                    if collector is not None:
                        collector.add(block.rows)
                # The framing holds the block that came last.
                is_full = limit_bytes is not None and size_bytes + len(block.block[2]) >= limit_bytes
                block = next(remaining, None)
            for piece in framing.finish():
                sink.write(piece)
                size_bytes += len(piece)
        stat = _stat(partition, name, size_bytes, row_count, delete_count)
        stat = replace(stat, min_event_time=times.least, max_event_time=times.greatest)
        statuses.append(WriteStatus(stat, None if spec.indexing is None else IndexedFile(log_ranges(collector, row_count))))
        name = replace(name, version=name.version + 1)
    return tuple(statuses)


def _stat(partition: str, name: LogFileName, size_bytes: int, row_count: int, delete_count: int) -> WriteStat:
    return WriteStat(
        file_id=name.file_id,
        path=join_path(partition, name.text),
        partition_path=partition,
        prev_commit=name.instant_time,
        num_writes=row_count,
        num_update_writes=row_count,
        num_deletes=delete_count,
        total_write_bytes=size_bytes,
        file_size_in_bytes=size_bytes,
        log_version=name.version,
        log_offset=0,
        base_file="",
        log_files=(name.text,),
    )

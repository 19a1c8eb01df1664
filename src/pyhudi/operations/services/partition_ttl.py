"""Partition time to live (TTL): delete partitions that have not been written to for some days.

A partition's age starts at the newest instant of its latest file slices, as with Hudi's KEEP_BY_TIME, or at the instant
that created the partition (KEEP_BY_CREATION_TIME), which its partition metadata file records. Expired partitions are
deleted by `delete_partitions`.

Source: docs/formats/writing.md, "Replace commits".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from pyhudi.errors import CorruptData
from pyhudi.format.instants import format_instant_time
from pyhudi.format.partition_metadata import PartitionMetadata
from pyhudi.format.paths import PARTITION_METADATA_FILE, join_path
from pyhudi.operations.commit.results import WriteResult
from pyhudi.options import service_options
from pyhudi.options.declaration import Options, read_settings
from pyhudi.table.snapshot import load_snapshot, retry_on_stale_files
from pyhudi.table.table_context import TableContext

DAY_MS = 86_400_000

DeletePartitions = Callable[[tuple[str, ...]], WriteResult]
"""Deletes partitions, named by path, in one replacecommit."""


@dataclass(frozen=True, slots=True)
class TtlSettings:
    """Settings of partition TTL.

    Attributes:
        days: Days after which a partition expires; below 1: never.
        selected: Partitions that may expire, None for all.
        limit: Maximum number of partitions deleted at once, oldest first.
        by_creation: Age starts at the creation of a partition.
    """

    days: Annotated[int, service_options.PARTITION_TTL_STRATEGY_DAYS_RETAIN]
    selected: Annotated[tuple[str, ...] | None, service_options.PARTITION_TTL_STRATEGY_PARTITION_SELECTED]
    limit: Annotated[int, service_options.PARTITION_TTL_STRATEGY_MAX_DELETE_PARTITIONS]
    by_creation: Annotated[bool, service_options.PARTITION_TTL_MANAGEMENT_STRATEGY_TYPE] = False

    @classmethod
    def of(cls, options: Options) -> TtlSettings:
        """Build the settings from checked options."""
        return read_settings(
            cls,
            options,
            selected=options.names(service_options.PARTITION_TTL_STRATEGY_PARTITION_SELECTED) or None,
            by_creation=options.value_or_default(service_options.PARTITION_TTL_MANAGEMENT_STRATEGY_TYPE)
            == "KEEP_BY_CREATION_TIME",
        )


@retry_on_stale_files
def find_expired_partitions(context: TableContext, settings: TtlSettings) -> tuple[str, ...]:
    """Return the expired partitions, oldest first."""
    if settings.days < 1 or not context.config.keys.partition_fields:
        return ()
    limit = format_instant_time(context.env.now_ms() - settings.days * DAY_MS, context.config.zone)
    written: dict[str, str] = {}
    for partition, slices in load_snapshot(context).slices(settings.selected).items():
        times = [time for s in slices for time in (s.base_instant, *(log.name.instant_time for log in s.logs))]
        if times and partition:
            created = _creation_time(context, partition) if settings.by_creation else None
            written[partition] = created or max(times)
    expired = sorted((time, partition) for partition, time in written.items() if time < limit)
    return tuple(partition for _, partition in expired[: max(0, settings.limit)])


def run_ttl(context: TableContext, ttl: TtlSettings, delete: DeletePartitions) -> WriteResult:
    """Delete the expired partitions in one replacecommit; commit nothing, with the reason, if there are none."""
    expired = find_expired_partitions(context, ttl)
    if not expired:
        return WriteResult("delete_partition", None, None, reason=f"no partition expires: {_why_none(context, ttl)}")
    return delete(expired)


def _why_none(context: TableContext, ttl: TtlSettings) -> str:
    if not context.config.keys.partition_fields:
        return "the table has no partitions"
    if ttl.days < 1:
        return f"{service_options.PARTITION_TTL_STRATEGY_DAYS_RETAIN} is {ttl.days}; set it to 1 or more days"
    if ttl.limit < 1:
        return f"{service_options.PARTITION_TTL_STRATEGY_MAX_DELETE_PARTITIONS} is {ttl.limit}; set it to 1 or more"
    start = "creation" if ttl.by_creation else "last write"
    selected = "partition" if ttl.selected is None else "selected partition"
    return f"no {selected} is older than {ttl.days} days since its {start}"


def _creation_time(context: TableContext, partition: str) -> str | None:
    """Return the request time of the instant that created a partition; None if its metadata is not the text file."""
    path = join_path(partition, PARTITION_METADATA_FILE)
    data = context.storage.read(path)
    if data is None:
        return None
    try:
        return PartitionMetadata.decode(data).instant_time
    except CorruptData as error:
        raise error.with_path(context.storage.absolute(path)) from error

"""Which table services follow a write, and how: parsed once from the options."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from pyhudi.errors import InvalidRequest
from pyhudi.metadata_table.writer.metadata_services import MetadataServiceSettings
from pyhudi.metadata_table.writer.metadata_settings import MetadataSettings
from pyhudi.operations.services.archive import ArchiveSettings
from pyhudi.operations.services.clean import CleanSettings
from pyhudi.operations.services.cluster import ClusterSettings
from pyhudi.operations.services.compact import CompactSettings
from pyhudi.operations.services.partition_ttl import TtlSettings
from pyhudi.options import service_options
from pyhudi.options.declaration import Options, read_settings
from pyhudi.options.lock_options import LOCK_WAIT
from pyhudi.options.service_options import (
    ARCHIVE_SWITCH,
    CLEAN_SWITCH,
    CLUSTER_ASYNC,
    CLUSTER_SCHEDULE,
    COMPACT_ASYNC,
    COMPACT_INLINE,
    COMPACT_SCHEDULE,
    LOG_COMPACT_INLINE,
    SERVICES_SWITCH,
    TTL_INLINE,
)
from pyhudi.options.service_options import CLUSTERING_INLINE as CLUSTER_INLINE


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Which table services follow a write.

    Attributes:
        clean: Settings of the clean, None if disabled.
        archive: Settings of the archival, None if disabled.
        metadata: Settings of metadata table services, None if disabled.
        compact: Settings of compactions.
        compact_inline: Run pending compactions, and schedule and run new ones.
        requires_compaction: The options require ``compact_inline``, which is only the default otherwise.
        compact_schedule_inline: Schedule a compaction if none is pending, and let another thread or process run it.
        log_compact_inline: Like ``compact_inline``, for log compactions.
        clustering: Settings of clusterings.
        cluster_inline: Run pending clusterings, and schedule and run new ones.
        cluster_schedule: Schedule a clustering, and let another thread or process run it.
        ttl: Settings of partition TTL.
        ttl_inline: Delete expired partitions after a write.
        raise_failures: A failed service makes the write raise, after its commit.
        background: Services that a background thread of the writer runs; the writer only schedules plans for it.
        disabled: No service runs.
    """

    clean: Annotated[CleanSettings | None, SERVICES_SWITCH, CLEAN_SWITCH]
    archive: Annotated[ArchiveSettings | None, SERVICES_SWITCH, ARCHIVE_SWITCH]
    metadata: Annotated[MetadataServiceSettings | None, SERVICES_SWITCH]
    compact: CompactSettings
    compact_inline: Annotated[bool, SERVICES_SWITCH, COMPACT_INLINE, COMPACT_SCHEDULE, COMPACT_ASYNC]
    requires_compaction: Annotated[bool, SERVICES_SWITCH, COMPACT_INLINE]
    compact_schedule_inline: Annotated[bool, SERVICES_SWITCH, COMPACT_INLINE, COMPACT_SCHEDULE, COMPACT_ASYNC]
    log_compact_inline: Annotated[bool, SERVICES_SWITCH, LOG_COMPACT_INLINE]
    clustering: ClusterSettings
    cluster_inline: Annotated[bool, SERVICES_SWITCH, CLUSTER_INLINE]
    cluster_schedule: Annotated[bool, SERVICES_SWITCH, CLUSTER_SCHEDULE, CLUSTER_ASYNC]
    ttl: TtlSettings
    ttl_inline: Annotated[bool, SERVICES_SWITCH, TTL_INLINE]
    raise_failures: Annotated[bool, service_options.FAIL_WRITES_ON_INLINE_TABLE_SERVICE_EXCEPTION]
    background: frozenset[str] = frozenset()
    disabled: bool = False

    @classmethod
    def of(cls, options: Options) -> ServiceSettings:
        """Build the settings from checked options.

        A write to a merge-on-read table compacts inline unless the options configure another compaction. Hudi's batch
        writers do the same: a table that is never compacted gets slower with every write.
        """
        enabled = options.flag(SERVICES_SWITCH)
        inline, asynchronous = options.explicit(COMPACT_INLINE), options.explicit(COMPACT_ASYNC)
        left_to_others = asynchronous is not None
        scheduled = options.flag(COMPACT_SCHEDULE) or asynchronous == "true"
        clusters = options.flag(CLUSTER_INLINE)
        cluster_scheduled = options.flag(CLUSTER_SCHEDULE) or options.flag(CLUSTER_ASYNC)
        if inline == "true" and options.flag(COMPACT_SCHEDULE):
            raise InvalidRequest(
                f"{COMPACT_INLINE} is incompatible with {COMPACT_SCHEDULE}: the writer either compacts, or only "
                "schedules compactions"
            )
        if clusters and cluster_scheduled:
            raise InvalidRequest(
                f"{CLUSTER_INLINE} is incompatible with {CLUSTER_SCHEDULE} and {CLUSTER_ASYNC}: the writer either "
                "clusters, or only schedules clusterings"
            )
        archive = ArchiveSettings.of(options) if enabled and options.flag(ARCHIVE_SWITCH) else None
        metadata = MetadataServiceSettings(
            MetadataSettings.of(options), CleanSettings.of(options), archive, options.integer(LOCK_WAIT)
        )
        return read_settings(
            cls,
            options,
            clean=CleanSettings.of(options) if enabled and options.flag(CLEAN_SWITCH) else None,
            archive=archive,
            metadata=metadata if enabled else None,
            compact_inline=enabled and (not left_to_others and not scheduled if inline is None else inline == "true"),
            requires_compaction=enabled and inline == "true",
            compact_schedule_inline=enabled and scheduled and inline != "true",
            log_compact_inline=enabled and options.flag(LOG_COMPACT_INLINE),
            cluster_inline=enabled and clusters,
            cluster_schedule=enabled and cluster_scheduled,
            ttl_inline=enabled and options.flag(TTL_INLINE),
        )

    def none(self) -> ServiceSettings:
        """Return the settings with all services disabled."""
        return replace(self, disabled=True)

    def without_commit_metadata(self) -> ServiceSettings:
        """Return the settings of services that follow a write: their commits have no entries of the caller."""
        compact = replace(self.compact, commit=self.compact.commit.for_services())
        return replace(self, compact=compact, clustering=replace(self.clustering, commit=self.clustering.commit.for_services()))

    def for_background_thread(self, names: frozenset[str]) -> ServiceSettings:
        """Return the settings of a writer whose background thread runs some services."""
        return replace(self, background=names)

"""Which table services follow a write by themselves, and how: parsed once from the options."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from pyhudi.errors import InvalidRequest
from pyhudi.metadata_table.writer.metadata_services import MetadataServiceSettings
from pyhudi.metadata_table.writer.metadata_settings import MetadataSettings
from pyhudi.operations.services.archive import ArchiveSettings
from pyhudi.operations.services.clean import CleanSettings
from pyhudi.operations.services.cluster import INLINE as CLUSTER_INLINE
from pyhudi.operations.services.cluster import ClusterSettings
from pyhudi.operations.services.compact import CompactSettings
from pyhudi.operations.services.partition_ttl import TtlSettings
from pyhudi.options.declaration import Option, Options, read_settings
from pyhudi.storage.locks import LOCK_WAIT

SERVICES_SWITCH = Option("hoodie.table.services.enabled", bool, "true", "services follow writes at all")
CLEAN_SWITCH = Option("hoodie.clean.automatic", bool, "true", "a clean follows a write when it is due")
ARCHIVE_SWITCH = Option("hoodie.archive.automatic", bool, "true", "an archival follows a write when it is due")
COMPACT_INLINE = Option(
    "hoodie.compact.inline",
    bool,
    None,
    "a write to a merge-on-read table compacts it when that is due; unset: unless the options say who else does",
)
COMPACT_SCHEDULE = Option(
    "hoodie.compact.schedule.inline", bool, "false", "a write plans a compaction when it is due, and leaves it to others"
)
COMPACT_ASYNC = Option(
    "hoodie.datasource.compaction.async.enable", bool, None, "others compact: true plans for them, false leaves that to them too"
)
LOG_COMPACT_INLINE = Option(
    "hoodie.log.compaction.inline", bool, "false", "a write to a merge-on-read table makes a log compaction when that is due"
)
CLUSTER_SCHEDULE = Option(
    "hoodie.clustering.schedule.inline", bool, "false", "a write plans a clustering when it is due, and leaves it to others"
)
CLUSTER_ASYNC = Option(
    "hoodie.clustering.async.enabled",
    bool,
    "false",
    "others cluster: a write plans for them when a clustering is due",
    aliases=("hoodie.datasource.clustering.async.enable",),
)
TTL_INLINE = Option("hoodie.partition.ttl.inline", bool, "false", "a write deletes partitions that have expired")


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Which services follow a write by themselves.

    clean, archive, metadata (those of the metadata table): None when switched off.

    compact: how compactions are made.  compact_inline, log_compact_inline: pending plans are carried out and new ones made and
    carried out; compact_schedule_inline: new ones are made, when none is pending, and left to another thread or process.
    clustering, cluster_inline, cluster_schedule: the same of clusterings.  ttl, ttl_inline: how partitions expire, and whether
    they do after a write.  raise_failures: a service that fails makes the write raise, after its commit.

    background: names of services that a thread beside the writer runs; the writer plans for it, and no more.  disabled: none
    runs.
    """

    clean: Annotated[CleanSettings | None, SERVICES_SWITCH, CLEAN_SWITCH]
    archive: Annotated[ArchiveSettings | None, SERVICES_SWITCH, ARCHIVE_SWITCH]
    metadata: Annotated[MetadataServiceSettings | None, SERVICES_SWITCH]
    compact: CompactSettings
    compact_inline: Annotated[bool, SERVICES_SWITCH, COMPACT_INLINE, COMPACT_SCHEDULE, COMPACT_ASYNC]
    compact_schedule_inline: Annotated[bool, SERVICES_SWITCH, COMPACT_INLINE, COMPACT_SCHEDULE, COMPACT_ASYNC]
    log_compact_inline: Annotated[bool, SERVICES_SWITCH, LOG_COMPACT_INLINE]
    clustering: ClusterSettings
    cluster_inline: Annotated[bool, SERVICES_SWITCH, CLUSTER_INLINE]
    cluster_schedule: Annotated[bool, SERVICES_SWITCH, CLUSTER_SCHEDULE, CLUSTER_ASYNC]
    ttl: TtlSettings
    ttl_inline: Annotated[bool, SERVICES_SWITCH, TTL_INLINE]
    raise_failures: Annotated[
        bool,
        Option(
            "hoodie.fail.writes.on.inline.table.service.exception",
            bool,
            "true",
            "a service that fails after a commit makes the write raise; false: the result says so",
        ),
    ]
    background: frozenset[str] = frozenset()
    disabled: bool = False

    @classmethod
    def of(cls, options: Options) -> ServiceSettings:
        """From checked options.

        A write to a merge-on-read table compacts inline unless the options say who does it: so it is with real Hudi's writers of
        batches, and a table that nobody compacts gets slower with every write.
        """
        enabled = options.flag(SERVICES_SWITCH)
        inline, beside = options.explicit(COMPACT_INLINE), options.explicit(COMPACT_ASYNC)
        left_to_others = beside is not None
        scheduled = options.flag(COMPACT_SCHEDULE) or beside == "true"
        clusters = options.flag(CLUSTER_INLINE)
        cluster_scheduled = options.flag(CLUSTER_SCHEDULE) or options.flag(CLUSTER_ASYNC)
        if inline == "true" and options.flag(COMPACT_SCHEDULE):
            raise InvalidRequest(
                f"{COMPACT_INLINE} does not go with {COMPACT_SCHEDULE}: either the writer compacts, or it plans and leaves the "
                "work to others"
            )
        if clusters and cluster_scheduled:
            raise InvalidRequest(
                f"{CLUSTER_INLINE} does not go with {CLUSTER_SCHEDULE} or {CLUSTER_ASYNC}: either the writer clusters, or it "
                "plans and leaves the work to others"
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
            compact_schedule_inline=enabled and scheduled and inline != "true",
            log_compact_inline=enabled and options.flag(LOG_COMPACT_INLINE),
            cluster_inline=enabled and clusters,
            cluster_schedule=enabled and cluster_scheduled,
            ttl_inline=enabled and options.flag(TTL_INLINE),
        )

    def none(self) -> ServiceSettings:
        """The same, with everything switched off."""
        return replace(self, disabled=True)

    def for_background_thread(self, names: frozenset[str]) -> ServiceSettings:
        """The same for a writer beside which a thread runs some services."""
        return replace(self, background=names)

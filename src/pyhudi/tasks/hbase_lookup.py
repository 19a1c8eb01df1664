"""Settings of the HBase index, and its lookup as a value.

The implementation is `features.hbase_index`, which is loaded when a write uses the index.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated
from urllib.parse import urlsplit

from pyhudi.errors import InvalidRequest
from pyhudi.options import index_options
from pyhudi.options.declaration import Options, read_settings
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.tasks.file_stats import FileIndexing


@dataclass(frozen=True, slots=True)
class HbaseSettings:
    """Location of the index, and limits of its requests.

    pauses: milliseconds after each batch of a task.  rollback_sync: rollbacks remove the entries of their write.
    """

    servers: Annotated[tuple[str, ...], index_options.INDEX_HBASE_THRIFT_URIS] = ()
    table: Annotated[str | None, index_options.INDEX_HBASE_TABLE] = None
    get_batch_size: Annotated[int, index_options.INDEX_HBASE_GET_BATCH_SIZE] = 100
    put_batch_size: Annotated[int, index_options.INDEX_HBASE_PUT_BATCH_SIZE] = 100
    get_pause_ms: Annotated[int, index_options.INDEX_HBASE_SLEEP_MS_FOR_GET_BATCH] = 0
    put_pause_ms: Annotated[int, index_options.INDEX_HBASE_SLEEP_MS_FOR_PUT_BATCH] = 0
    rollback_sync: Annotated[bool, index_options.INDEX_HBASE_ROLLBACK_SYNC] = False

    @classmethod
    def of(cls, options: Options) -> HbaseSettings:
        """Build from checked options.  Raises InvalidRequest as `addresses`."""
        settings = read_settings(cls, options)
        assert settings.addresses
        return settings

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Host and port of each server.  Raises InvalidRequest if an option is missing or invalid."""
        for option, value in (
            (index_options.INDEX_HBASE_THRIFT_URIS, self.servers),
            (index_options.INDEX_HBASE_TABLE, self.table),
        ):
            if not value:
                raise InvalidRequest(f"index HBASE needs the option {option}")
        return tuple(map(_address, self.servers))


def _address(uri: str) -> tuple[str, int]:
    try:
        parsed = urlsplit(uri)
        host, port = parsed.hostname, parsed.port
    except ValueError:
        host, port = None, None
    if host is None or port is None or parsed.scheme != "thrift":
        raise InvalidRequest(f"{index_options.INDEX_HBASE_THRIFT_URIS}={uri}: expected thrift://host:port")
    return host, port


@dataclass(frozen=True, slots=True)
class ValidCommits:
    """Request times of completed writes: those of the active timeline, its start, and the completion times of archived ones.

    An instant before the start that is not archived was rolled back; Apache Hudi treats it as complete.
    """

    completed: frozenset[str]
    start: str | None
    archived: Mapping[str, str] = field(default_factory=dict)

    def counts(self, instant_time: str) -> bool:
        """Whether the write of a request time completed."""
        if instant_time in self.completed:
            return True
        return self.start is not None and instant_time < self.start and instant_time in self.archived


@dataclass(frozen=True, slots=True)
class LookupInHbaseIndex:
    """Look up keys in the index; keys without a valid entry are looked up in key columns."""

    index: HbaseSettings
    commits: ValidCommits


def by_hbase(settings: HbaseSettings, timeline: Timeline) -> LookupInHbaseIndex:
    """Return the lookup in the index for a write that is planned on a timeline."""
    completed = frozenset(instant.request_time for instant in timeline.completed_writes())
    return LookupInHbaseIndex(settings, ValidCommits(completed, timeline.start, timeline.archived_completions))


def with_keys(indexing: FileIndexing | None, settings: HbaseSettings | None) -> FileIndexing | None:
    """Return the statistics to collect, including added and removed keys if the HBase index needs them."""
    if settings is None or indexing is None or indexing.key_shards:
        return indexing
    return replace(indexing, key_shards=1)

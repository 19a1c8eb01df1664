"""Table services that follow a commit by themselves: clean, then archive.

Each service is a row of `_SERVICES`: a name and a function that takes the table, the settings and a glance at the timeline, and
says what it did in a few words: `run: ...`, `not due: ...` or `off: ...`.  A service that is not due costs nothing beyond what
the write has loaded.

The commit stands whatever happens here.  By `hoodie.fail.writes.on.inline.table.service.exception` a failure is raised as
`ServiceFailed` (the default, as in real Hudi) or noted in the result as `failed: ...`; then the services after it still run.

Source: writing and services, "Commit: exact order", "Cleaning" and "Archival triggers".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pyhudi.errors import ServiceFailed
from pyhudi.format.instants import Action, Instant, State
from pyhudi.operations.archive import ArchiveSettings, run_archive
from pyhudi.operations.clean import CleanSettings, run_clean
from pyhudi.operations.results import WriteResult
from pyhudi.options import Options
from pyhudi.plan.archival import reason_not_to_archive
from pyhudi.plan.cleaning import reason_not_to_clean
from pyhudi.table.context import TableContext
from pyhudi.timeline.timeline import Timeline

_LOG = logging.getLogger("pyhudi.operations.services")


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Which services follow a write by themselves.  clean, archive: None when switched off.

    raise_failures: a service that fails makes the write raise, after its commit.
    """

    clean: CleanSettings | None
    archive: ArchiveSettings | None
    raise_failures: bool

    @classmethod
    def of(cls, options: Options) -> ServiceSettings:
        """From checked options."""
        return cls(
            clean=CleanSettings.of(options) if options.flag("hoodie.clean.automatic") else None,
            archive=ArchiveSettings.of(options) if options.flag("hoodie.archive.automatic") else None,
            raise_failures=options.flag("hoodie.fail.writes.on.inline.table.service.exception"),
        )


def with_services(
    context: TableContext, settings: ServiceSettings, result: WriteResult, before: Timeline, action: Action
) -> WriteResult:
    """The result of a write, after the services that are due; none is when the write committed nothing.

    before: the timeline on which the write was planned.  action: under which it completed.
    Raises ServiceFailed when the settings ask for it.
    """
    if result.instant is None:
        return result
    done = Instant(result.instant, action, State.COMPLETED, result.completion_time)
    glance = Timeline.of((*before.instants, done), before.archived_completions)
    return replace(result, services=run_services(context, settings, glance, done))


def run_services(context: TableContext, settings: ServiceSettings, glance: Timeline, done: Instant) -> Mapping[str, str]:
    """Run what is due after a commit; service -> what it did.  glance: the timeline with the commit, possibly not the newest."""
    outcomes: dict[str, str] = {}
    for name, service in _SERVICES:
        try:
            outcomes[name] = service(context, settings, glance)
        except Exception as error:
            # Whatever failed, the caller has to learn that the commit stands.
            if settings.raise_failures:
                raise ServiceFailed(
                    f"{done.action} {done.request_time} of {context.storage.uri} is committed and stands; "
                    f"the {name} that followed it failed: {error}",
                    instant=done.request_time,
                    service=name,
                ) from error
            _LOG.warning("%s after %s of %s failed: %s", name, done.request_time, context.storage.uri, error)
            outcomes[name] = f"failed: {error}"
    return outcomes


def _clean(context: TableContext, settings: ServiceSettings, glance: Timeline) -> str:
    chosen = settings.clean
    if chosen is None:
        return "off: hoodie.clean.automatic=false"
    unfinished = bool(glance.pending(Action.CLEAN)) or (chosen.commit.failed_writes == "LAZY" and bool(glance.pending_writes()))
    reason = None if unfinished else reason_not_to_clean(glance, chosen.cleaning, None)
    if reason is not None:
        return f"not due: {reason}"
    result = run_clean(context, chosen)
    if result.instant is None and not result.finished:
        return f"not due: {result.reason}"
    return f"run: {result.file_count} files deleted" + (
        f", {len(result.finished)} earlier cleans finished" if result.finished else ""
    )


def _archive(context: TableContext, settings: ServiceSettings, glance: Timeline) -> str:
    chosen = settings.archive
    if chosen is None:
        return "off: hoodie.archive.automatic=false"
    reason = reason_not_to_archive(glance, chosen.archival)
    if reason is not None:
        return f"not due: {reason}"
    result = run_archive(context, chosen)
    return f"run: {len(result.instants)} instants archived" if result.instants else f"not due: {result.reason}"


Service = Callable[[TableContext, ServiceSettings, Timeline], str]

_SERVICES: tuple[tuple[str, Service], ...] = (("clean", _clean), ("archive", _archive))
"""In the order in which they run.  Compaction and clustering come after these, as in real Hudi: a service is added here, with
its settings in `ServiceSettings`."""

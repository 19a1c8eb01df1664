"""Running table services: after a commit, or in a pass apart from writes.

After a commit a service that is not due costs nothing beyond what the write has loaded.  The commit stands whatever happens here:
by `hoodie.fail.writes.on.inline.table.service.exception` a failure is raised as `ServiceFailed` (the default, as in real Hudi) or
noted in the result; then the services after it still run.

A pass does what is pending, then what is due.  Several may run at once, in threads, processes and machines: a plan is claimed
under the table lock, and whoever finds it claimed takes the next one.  A pass that dies leaves what it was at; another finds that
from its heartbeat and starts it anew.  Errors of the table or the store end one service of one pass, and the next pass tries
again; any other error ends the pass.

Both iterate the rows of `registry.SERVICES`.  Source: docs/formats/writing.md, "Completing a commit" and "Deployment".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from pyhudi.errors import HudiError, InvalidRequest, ServiceFailed
from pyhudi.format.instants import Action, Instant, State
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.commit.service_result import Failed, NotDue, Outcome
from pyhudi.operations.services import service_registry
from pyhudi.operations.services.partition_ttl import DeletePartitions
from pyhudi.operations.services.service_registry import Mode, Service, ServiceRun, Trigger
from pyhudi.operations.services.service_settings import ServiceSettings
from pyhudi.options.declaration import Options, read_settings
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.tasks.engine_protocol import Engine

_LOG = logging.getLogger("pyhudi.operations.services.run_services")

Outcomes = Mapping[str, Outcome]
"""Service -> what it came to."""


def with_services(
    context: TableContext,
    engine: Engine | None,
    settings: ServiceSettings,
    result: WriteResult,
    *,
    before: Timeline,
    action: Action,
    delete_partitions: DeletePartitions,
    metadata_timeline: Timeline | None = None,
) -> WriteResult:
    """The result of a write, after the services that are due; none is when the write committed nothing.

    engine: where tasks of services run; None leaves those with tasks to a later write.  before: the timeline on which the write
    was planned.  action: under which it completed.  delete_partitions: how partitions whose time is over are deleted.
    metadata_timeline: that of the metadata table right after the write, where it is known.
    Raises ServiceFailed when the settings ask for it.
    """
    if result.instant is None:
        return result
    done = Instant(result.instant, action, State.COMPLETED, result.completion_time)
    timeline = Timeline.of((*before.instants, done), before.archived_completions)
    outcomes = run_services(context, engine, settings, timeline, done, delete_partitions, metadata_timeline=metadata_timeline)
    return replace(result, services=printed(outcomes))


def run_services(
    context: TableContext,
    engine: Engine | None,
    settings: ServiceSettings,
    timeline: Timeline,
    completed_instant: Instant,
    delete_partitions: DeletePartitions,
    *,
    metadata_timeline: Timeline | None = None,
) -> Outcomes:
    """Run what is due after a commit.

    timeline: with the commit, possibly not the newest; metadata_timeline: the same of the metadata table, None where it is to be
    loaded, as it is by what follows a service that committed.
    """
    outcomes: dict[str, Outcome] = {}
    for service, part in _parts(context, settings, Trigger.AFTER_WRITE):
        if part is Mode.OFF:
            outcomes[service.name] = service.off
            continue
        visit = ServiceRun(context, engine, settings, part, timeline, delete_partitions, metadata_timeline=metadata_timeline)
        try:
            outcomes[service.name] = service.outcome(visit)
        except Exception as error:
            # Whatever failed, the caller has to learn that the commit stands.
            if settings.raise_failures:
                raise ServiceFailed(
                    f"{completed_instant.action} {completed_instant.request_time} of {context.storage.uri} is committed and "
                    "stands; "
                    f"the {service.name} that followed it failed: {error}",
                    instant=completed_instant.request_time,
                    service=service.name,
                ) from error
            _LOG.warning("%s after %s of %s failed: %s", service.name, completed_instant.request_time, context.storage.uri, error)
            outcomes[service.name] = Failed(str(error))
        if not isinstance(outcomes[service.name], NotDue):
            metadata_timeline = None
    return outcomes


@dataclass(frozen=True, slots=True)
class ServiceRunSettings:
    """What a pass does.

    names: the services that it runs.  trigger: whether they were named.  plan: False makes no new plans of what has plans.
    """

    services: ServiceSettings
    names: frozenset[str]
    trigger: Trigger
    plan: bool

    @classmethod
    def of(cls, options: Options, names: tuple[str, ...] | None, *, plan: bool) -> ServiceRunSettings:
        """From checked options.

        names: of services; None for all, of which log compactions and clusterings are planned, and partitions expire, only where
        the options switch that on.  plan: whether new plans are made at all.
        Raises InvalidRequest for a name that is not a service.
        """
        known = tuple(service.name for service in service_registry.SERVICES)
        unknown = set(names or ()) - set(known)
        if unknown:
            raise InvalidRequest(f"{', '.join(sorted(unknown))}: no such table service; there are {', '.join(known)}")
        settings, asked = ServiceSettings.of(options), Trigger.BY_NAME if names else Trigger.IN_RUN
        chosen = {
            s.name for s in service_registry.SERVICES if not names or s.name in names if s.part(settings, asked) is not None
        }
        return read_settings(cls, options, services=settings, names=frozenset(chosen), trigger=asked, plan=plan)


def run_services_once(
    context: TableContext,
    engine: Engine,
    settings: ServiceRunSettings,
    delete_partitions: DeletePartitions,
    should_continue: Callable[[], bool],
) -> Outcomes:
    """Run each chosen service once.  should_continue: asked before each service and each plan; False leaves the rest for another
    time.
    """
    context = context.reloaded()
    outcomes: dict[str, Outcome] = {}
    for service, part in _parts(context, settings.services, settings.trigger):
        if service.name not in settings.names or not should_continue():
            continue
        if part is Mode.OFF:
            outcomes[service.name] = service.off
            continue
        if part is Mode.RUN and not settings.plan and service.parts_with_tasks:
            part = Mode.PENDING
        try:
            timeline = context.timeline.load()
            visit = ServiceRun(context, engine, settings.services, part, timeline, delete_partitions, should_continue)
            outcomes[service.name] = service.outcome(visit)
        except HudiError as error:
            _LOG.warning("%s of %s failed: %s", service.name, context.storage.uri, error)
            outcomes[service.name] = Failed(f"{type(error).__name__}: {error}")
    return outcomes


def printed(outcomes: Outcomes) -> dict[str, str]:
    """Outcomes as users see them."""
    return {name: str(outcome) for name, outcome in outcomes.items()}


def _parts(context: TableContext, settings: ServiceSettings, trigger: Trigger) -> Iterator[tuple[Service, Mode]]:
    """The services of a table that have something to say, and what is done of each."""
    for service in service_registry.SERVICES:
        part = service.part(settings, trigger)
        if part is None or (service.of_logs and context.config.is_cow):
            continue
        if settings.disabled:
            part = Mode.OFF
        elif service.name in settings.background and part is not Mode.OFF:
            part = Mode.PLAN if service.plans else Mode.OFF
        yield service, part

"""Run table services: after a commit, or in a service run independent of writes.

After a commit, a service that is not due costs nothing beyond what the write has loaded. The commit remains valid
regardless of failures here: by `hoodie.fail.writes.on.inline.table.service.exception` a failure is raised as `ServiceFailed`
(the default, as in Hudi), or recorded in the result, and then the remaining services still run.

A service run processes what is pending, then what is due. Several may run concurrently, in threads, processes and
machines: a plan is claimed under the table lock, and a run that finds it claimed continues with the next one. If a run
dies, another run detects that from the heartbeat and starts the plan again. An error of the table or the store ends one
service of one run, and the next run retries; any other error ends the run.

Both iterate over `service_registry.SERVICES`. Source: docs/formats/writing.md, "Completing a commit" and "Deployment".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from pyhudi.errors import HudiError, InvalidRequest, ServiceFailed, get_logger
from pyhudi.format.instants import Action, Instant, State
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.commit.service_result import Executed, Failed, NotDue, Outcome
from pyhudi.operations.services import service_registry
from pyhudi.operations.services.partition_ttl import DeletePartitions
from pyhudi.operations.services.service_registry import Mode, Service, ServiceRun, Trigger
from pyhudi.operations.services.service_settings import ServiceSettings
from pyhudi.options.declaration import Options, read_settings
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.tasks.engine_protocol import Engine

_LOG = get_logger("pyhudi.operations.services.run_services")

Outcomes = Mapping[str, Outcome]
"""Outcome by service."""


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
    """Run the services that are due after a write, and add their outcomes to its result. None run if the write committed nothing.

    Args:
        engine: Runs tasks of services; None defers services with tasks to a later write.
        before: The timeline on which the write was planned.
        action: The completed action of the write.
        delete_partitions: Deletes expired partitions.
        metadata_timeline: Timeline of the metadata table right after the write, if known.

    Raises:
        ServiceFailed: A service failed, and the settings raise failures.
    """
    if result.instant is None:
        return result
    done = Instant(result.instant, action, State.COMPLETED, result.completion_time)
    timeline = Timeline.of((*before.instants, done), before.archived_completions)
    outcomes = run_services(context, engine, settings, timeline, done, delete_partitions, metadata_timeline=metadata_timeline)
    return replace(result, services=format_outcomes(outcomes))


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
    """Run the services that are due after a commit.

    Args:
        engine: Runs tasks of services.
        timeline: A timeline with the commit, possibly not the newest.
        completed_instant: The commit.
        delete_partitions: Deletes expired partitions.
        metadata_timeline: The corresponding timeline of the metadata table. None loads it, as do services after one
            that committed and does not return it.
    """
    outcomes: dict[str, Outcome] = {}
    for service, part in _parts(context, settings, Trigger.AFTER_WRITE):
        if part is Mode.OFF:
            outcomes[service.name] = service.off
            continue
        service_run = ServiceRun(
            context, engine, settings, part, timeline, delete_partitions, metadata_timeline=metadata_timeline, inline=True
        )
        try:
            outcomes[service.name] = service.outcome(service_run)
        except Exception as error:
            # In any case, the caller has to learn that the commit is valid.
            if settings.raise_failures:
                raise ServiceFailed(
                    f"{completed_instant.action} {completed_instant.request_time} of {context.storage.uri} is committed; "
                    f"the {service.name} service that followed it failed: {error}",
                    instant=completed_instant.request_time,
                    service=service.name,
                ) from error
            _LOG.warning("%s after %s of %s failed: %s", service.name, completed_instant.request_time, context.storage.uri, error)
            outcomes[service.name] = Failed(str(error))
        outcome = outcomes[service.name]
        if isinstance(outcome, Executed):
            metadata_timeline = outcome.metadata_timeline
        elif not isinstance(outcome, NotDue):
            metadata_timeline = None
    return outcomes


@dataclass(frozen=True, slots=True)
class ServiceRunSettings:
    """Settings of a service run.

    Attributes:
        services: Settings of the services.
        names: Services to run.
        trigger: Whether the services were named.
        plan: False schedules no new plans.
    """

    services: ServiceSettings
    names: frozenset[str]
    trigger: Trigger
    plan: bool

    @classmethod
    def of(cls, options: Options, names: tuple[str, ...] | None, *, plan: bool) -> ServiceRunSettings:
        """Build the settings from checked options.

        Args:
            options: Checked options.
            names: Services to run. None runs all; log compaction, clustering and partition TTL then require the options
                that enable them.
            plan: Whether new plans are scheduled.

        Raises:
            InvalidRequest: A name is not a service.
        """
        known = tuple(service.name for service in service_registry.SERVICES)
        unknown = set(names or ()) - set(known)
        if unknown:
            raise InvalidRequest(f"no table service is named {', '.join(sorted(unknown))}; use {', '.join(known)}")
        settings, trigger = ServiceSettings.of(options), Trigger.BY_NAME if names else Trigger.IN_RUN
        chosen = {
            s.name for s in service_registry.SERVICES if not names or s.name in names if s.part(settings, trigger) is not None
        }
        return read_settings(cls, options, services=settings, names=frozenset(chosen), trigger=trigger, plan=plan)


def run_services_once(
    context: TableContext,
    engine: Engine,
    settings: ServiceRunSettings,
    delete_partitions: DeletePartitions,
    should_continue: Callable[[], bool],
) -> Outcomes:
    """Run each chosen service once.

    Args:
        engine: Runs tasks of services.
        delete_partitions: Deletes expired partitions.
        should_continue: Called before each service and each plan; if it returns False, the rest is left for another
            run.
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
            service_run = ServiceRun(context, engine, settings.services, part, timeline, delete_partitions, should_continue)
            outcomes[service.name] = service.outcome(service_run)
        except HudiError as error:
            _LOG.warning("%s of %s failed: %s", service.name, context.storage.uri, error)
            outcomes[service.name] = Failed(f"{type(error).__name__}: {error}")
    return outcomes


def format_outcomes(outcomes: Outcomes) -> dict[str, str]:
    """Return outcomes as text for users."""
    return {name: str(outcome) for name, outcome in outcomes.items()}


def _parts(context: TableContext, settings: ServiceSettings, trigger: Trigger) -> Iterator[tuple[Service, Mode]]:
    """Return the services that apply to a table, with the mode of each."""
    for service in service_registry.SERVICES:
        part = service.part(settings, trigger)
        if part is None or (service.of_logs and context.config.is_cow):
            continue
        if settings.disabled:
            part = Mode.OFF
        elif service.name in settings.background and part is not Mode.OFF:
            part = Mode.PLAN if service.plans else Mode.OFF
        yield service, part

"""Settings of metrics. The implementation is `features.metrics`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pyhudi import features
from pyhudi.options import metrics_options
from pyhudi.options.declaration import Options, read_settings
from pyhudi.options.metrics_options import METRICS_ON
from pyhudi.table.table_context import TableContext


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Settings of metrics and their reporters; each field is described by its option."""

    enabled: Annotated[bool, METRICS_ON]
    reporter: Annotated[str | None, metrics_options.REPORTER_TYPE]
    reporters: Annotated[tuple[str, ...], metrics_options.REPORTERS]
    prefix: Annotated[str | None, metrics_options.METRICS_PREFIX]
    lock: Annotated[bool, metrics_options.LOCK_METRICS]
    prometheus_port: Annotated[int, metrics_options.PROMETHEUS_PORT]
    push_host: Annotated[str, metrics_options.PUSH_HOST]
    push_port: Annotated[int, metrics_options.PUSH_PORT]
    push_job: Annotated[str | None, metrics_options.PUSH_JOB]
    push_labels: Annotated[str | None, metrics_options.PUSH_LABELS]
    push_suffix: Annotated[bool, metrics_options.PUSH_SUFFIX]
    push_delete: Annotated[bool, metrics_options.PUSH_DELETE]
    datadog_site: Annotated[str, metrics_options.DATADOG_SITE]
    datadog_key: Annotated[str | None, metrics_options.DATADOG_KEY] = field(repr=False)
    datadog_timeout_s: Annotated[int, metrics_options.DATADOG_TIMEOUT]
    datadog_prefix: Annotated[str | None, metrics_options.DATADOG_PREFIX]
    datadog_host: Annotated[str | None, metrics_options.DATADOG_HOST]
    datadog_tags: Annotated[tuple[str, ...], metrics_options.DATADOG_TAGS]
    statsd_address: Annotated[str, metrics_options.STATSD_ADDRESS]
    csv_path: Annotated[str | None, metrics_options.CSV_PATH]


def with_metrics(context: TableContext, options: Options) -> TableContext:
    """Return the table with an observer that reports metrics, if the options enable them, else without one.

    Raises:
        InvalidRequest: No reporter is named, or one is unknown or lacks an option.
        Unsupported: A reporter is not supported, or requires a package that is not installed.
    """
    if not options.flag(METRICS_ON):
        return context if context.observer is None else replace(context, observer=None)
    settings = read_settings(MetricsSettings, options)
    observer: Any = features.load("metrics", f"option {METRICS_ON}").open_observer(settings, context.config.name)
    return context if context.observer is observer else replace(context, observer=observer)

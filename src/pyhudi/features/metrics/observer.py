"""The observer of a table: metrics of each operation, totals of counters, and reporters."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import lru_cache

from pyhudi.errors import InvalidRequest, Unsupported, get_logger
from pyhudi.features.metrics.open_telemetry import OpenTelemetry
from pyhudi.features.metrics.operation_metrics import Metric, metric_prefix, operation_instants, operation_metrics
from pyhudi.features.metrics.prometheus import PushGateway, scrape_endpoint
from pyhudi.features.metrics.reporters import DATADOG_URLS, Console, CsvFile, Datadog, Reporter, Sample, StatsD
from pyhudi.operations.commit.events import OperationEvent
from pyhudi.operations.commit.metrics_settings import MetricsSettings
from pyhudi.options.metrics_options import METRICS_ON, REPORTER_TYPE, REPORTERS
from pyhudi.table.table_context import TableContext

_LOG = get_logger("pyhudi.features.metrics")

_KNOWN_INSTANTS = 256

_Open = Callable[[MetricsSettings, str], Reporter]

_HUDI: dict[str, _Open] = {
    "CONSOLE": lambda settings, table: Console(),
    "DATADOG": lambda settings, table: Datadog(
        settings.datadog_key,
        DATADOG_URLS[settings.datadog_site],
        settings.datadog_timeout_s,
        settings.datadog_prefix,
        settings.datadog_host,
        settings.datadog_tags,
    ),
    "PROMETHEUS": lambda settings, table: scrape_endpoint(settings.prometheus_port),
    "PROMETHEUS_PUSHGATEWAY": PushGateway,
}
_OWN: dict[str, _Open] = {
    "CSV": lambda settings, table: CsvFile(settings.csv_path),
    "OPENTELEMETRY": lambda settings, table: OpenTelemetry(),
    "STATSD": lambda settings, table: StatsD(settings.statsd_address),
}


@lru_cache(maxsize=256)
def open_observer(settings: MetricsSettings, table_name: str) -> MetricsObserver:
    """Return the observer of a table name with these settings, one for each process.

    Raises:
        InvalidRequest: No reporter is named, or one is unknown or lacks an option.
        Unsupported: A reporter is not supported, or requires a package that is not installed.
    """
    observer = MetricsObserver(settings, table_name)
    observer.open()
    return observer


def _open_reporters(settings: MetricsSettings, table_name: str) -> list[Reporter]:
    opens: list[_Open] = []
    if settings.reporter is not None:
        if settings.reporter not in _HUDI:
            raise Unsupported(
                f"option {REPORTER_TYPE}={settings.reporter} is not supported: use {', '.join(_HUDI)}, or {REPORTERS} with "
                f"{', '.join(_OWN)}"
            )
        opens.append(_HUDI[settings.reporter])
    for name in settings.reporters:
        if name.upper() not in _OWN:
            raise InvalidRequest(f"option {REPORTERS}: no reporter is named {name}; use {', '.join(_OWN)}")
        opens.append(_OWN[name.upper()])
    if not opens:
        raise InvalidRequest(
            f"option {METRICS_ON} requires a reporter: set {REPORTER_TYPE} ({', '.join(_HUDI)}) "
            f"or {REPORTERS} ({', '.join(_OWN)})"
        )
    return [open_reporter(settings, table_name) for open_reporter in opens]


class MetricsObserver:
    """Reports the metrics of operations. A failed report is logged, and does not affect the operation.

    In another process it opens its reporters with the first operation that ends there: a worker that runs tasks opens none.
    """

    def __init__(self, settings: MetricsSettings, table_name: str) -> None:
        self._settings = settings
        self._table_name = table_name
        self._prefix = metric_prefix(settings.prefix, table_name)
        self._reporters: list[Reporter] | None = None
        self._mutex = threading.Lock()
        self._totals: Counter[str] = Counter()
        self._known: deque[tuple[str, ...]] = deque(maxlen=_KNOWN_INSTANTS)
        self._lock_metrics: list[Metric] = []

    def __reduce__(self) -> tuple[type[MetricsObserver], tuple[MetricsSettings, str]]:
        return MetricsObserver, (self._settings, self._table_name)

    def open(self) -> Sequence[Reporter]:
        """Open the reporters, once. Raises as `open_observer`."""
        if self._reporters is None:
            self._reporters = _open_reporters(self._settings, self._table_name)
        return self._reporters

    def ended(self, event: OperationEvent, context: TableContext) -> None:
        """Report an operation. One that contains another one, such as a merge with its upsert, is reported once."""
        key = (context.storage.uri, *operation_instants(event.result))
        with self._mutex:
            if len(key) > 1 and key in self._known:
                return
            self._known.append(key)
            waits, self._lock_metrics = self._lock_metrics, []
        samples = self._samples((*operation_metrics(event, context), *waits))
        if not samples:
            return
        for reporter in self.open():
            try:
                reporter.report(event, samples)
            except Exception as error:
                _LOG.warning("metrics of %s were not reported by %s: %s", context.storage.uri, type(reporter).__name__, error)

    def locked(self, waited_ms: int, *, is_held: bool) -> None:
        """Count a request of the table lock; it is reported with the operation."""
        if not self._settings.lock:
            return
        outcome = "success" if is_held else "failure"
        metrics = [
            Metric("lock.acquire.attempts", 1, is_counter=True),
            Metric(f"lock.acquire.{outcome}", 1, is_counter=True),
            Metric("lock.acquire.duration", waited_ms),
        ]
        with self._mutex:
            if len(self._lock_metrics) < _KNOWN_INSTANTS * len(metrics):
                self._lock_metrics += metrics

    def _samples(self, metrics: Sequence[Metric]) -> tuple[Sample, ...]:
        samples: dict[str, Sample] = {}
        with self._mutex:
            for metric in metrics:
                name = f"{self._prefix}.{metric.name}"
                if not metric.is_counter:
                    samples[name] = Sample(name, metric.value)
                    continue
                earlier = samples.get(name)
                self._totals[name] += int(metric.value)
                grown = metric.value + (0 if earlier is None else earlier.increment or 0)
                samples[name] = Sample(name, self._totals[name], grown)
        return tuple(samples.values())

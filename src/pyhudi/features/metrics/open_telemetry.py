"""OpenTelemetry: gauges and counters, and a span for each operation with a span for each of its phases.

The program or `opentelemetry-instrument` configures where they go, for example to a collector by OTLP.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from pyhudi.errors import Unsupported
from pyhudi.features.metrics.reporters import Sample
from pyhudi.operations.commit.events import OperationEvent


class OpenTelemetry:
    """Passes metrics and spans to the providers of the process."""

    def __init__(self) -> None:
        if find_spec("opentelemetry") is None:
            raise Unsupported('reporter OPENTELEMETRY requires opentelemetry-api: pip install "pyhudi[opentelemetry]"')
        from opentelemetry import metrics, trace

        self._meter, self._tracer = metrics.get_meter("pyhudi"), trace.get_tracer("pyhudi")
        self._status = trace.Status(trace.StatusCode.ERROR)
        self._set_parent = trace.set_span_in_context
        self._instruments: dict[str, Any] = {}

    def report(self, event: OperationEvent, samples: Sequence[Sample]) -> None:
        attributes = {"table": event.table, "uri": event.uri}
        for sample in samples:
            if sample.increment is None:
                self._instrument(sample.name, self._meter.create_gauge).set(sample.value, attributes)
            else:
                self._instrument(sample.name, self._meter.create_counter).add(sample.increment, attributes)
        self._add_spans(event, attributes)

    def _instrument(self, name: str, create: Any) -> Any:
        if name not in self._instruments:
            self._instruments[name] = create(name)
        return self._instruments[name]

    def _add_spans(self, event: OperationEvent, attributes: dict[str, str]) -> None:
        ended_ns = time.time_ns()
        begun_ns = ended_ns - round(event.seconds * 1e9)
        details = {**attributes, "instant": str(getattr(event.result, "instant", None) or "")}
        span = self._tracer.start_span(f"pyhudi {event.operation}", start_time=begun_ns, attributes=details)
        parent, phase_ns = self._set_parent(span), begun_ns
        for phase, seconds in getattr(event.result, "seconds", {}).items():
            phase_end_ns = min(phase_ns + round(seconds * 1e9), ended_ns)
            self._tracer.start_span(f"pyhudi {event.operation} {phase}", parent, start_time=phase_ns).end(phase_end_ns)
            phase_ns = phase_end_ns
        if event.error is not None:
            span.set_attribute("error.type", event.error)
            span.set_status(self._status)
        span.end(ended_ns)

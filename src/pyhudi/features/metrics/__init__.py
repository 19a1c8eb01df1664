"""Metrics of writes and table services, with Hudi's names, sent by reporters.

operation_metrics   names and values of one operation
observer            collects them for one table, and passes them to its reporters
reporters           console, CSV, StatsD, Datadog
prometheus          scrape endpoint and push gateway
open_telemetry      metrics and spans through the OpenTelemetry API
"""

from __future__ import annotations

from pyhudi.features import exports

_EXPORTS = {"open_observer": "observer"}
__getattr__ = exports(__name__, _EXPORTS)

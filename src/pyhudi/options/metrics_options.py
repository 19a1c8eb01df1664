"""Options of metrics."""

from __future__ import annotations

from pyhudi.options.declaration import Option

METRICS_ON = Option("hoodie.metrics.on", bool, "false", "writes and table services report metrics")
REPORTER_TYPE = Option(
    "hoodie.metrics.reporter.type",
    ("CONSOLE", "DATADOG", "PROMETHEUS", "PROMETHEUS_PUSHGATEWAY", "CLOUDWATCH", "GRAPHITE", "INMEMORY", "JMX", "M3", "SLF4J"),
    None,
    "reporter of Hudi: CONSOLE, DATADOG, PROMETHEUS or PROMETHEUS_PUSHGATEWAY; the others are refused",
)
REPORTERS = Option(
    "pyhudi.metrics.reporters",
    str,
    None,
    "further reporters, separated by commas: CSV, OPENTELEMETRY, STATSD",
)
METRICS_PREFIX = Option(
    "hoodie.metrics.reporter.metricsname.prefix",
    str,
    None,
    "first part of the names of metrics, by default the name of the table; dots become underscores",
)
LOCK_METRICS = Option("hoodie.metrics.lock.enable", bool, "false", "metrics of the table lock too")
PROMETHEUS_PORT = Option(
    "hoodie.metrics.prometheus.port", int, "9090", "port of this process that Prometheus scrapes", at_least=1
)
PUSH_HOST = Option("hoodie.metrics.pushgateway.host", str, "localhost", "host of the push gateway")
PUSH_PORT = Option("hoodie.metrics.pushgateway.port", int, "9091", "port of the push gateway", at_least=1)
PUSH_JOB = Option("hoodie.metrics.pushgateway.job.name", str, None, "job name at the push gateway, by default the table name")
PUSH_LABELS = Option(
    "hoodie.metrics.pushgateway.report.labels", str, None, "labels at the push gateway, as `name:value,name:value`"
)
PUSH_SUFFIX = Option(
    "hoodie.metrics.pushgateway.random.job.name.suffix", bool, "true", "the job name gets a random suffix for each process"
)
PUSH_DELETE = Option(
    "hoodie.metrics.pushgateway.delete.on.shutdown", bool, "true", "the metrics are deleted at the push gateway when Python exits"
)
DATADOG_SITE = Option("hoodie.metrics.datadog.api.site", ("US", "EU"), "US", "Datadog site")
DATADOG_KEY = Option("hoodie.metrics.datadog.api.key", str, None, "Datadog API key")
DATADOG_TIMEOUT = Option("hoodie.metrics.datadog.api.timeout.seconds", int, "3", "seconds for one request to Datadog", at_least=1)
DATADOG_PREFIX = Option("hoodie.metrics.datadog.metric.prefix", str, None, "prefix of metrics in Datadog, before a dot")
DATADOG_HOST = Option("hoodie.metrics.datadog.metric.host", str, None, "host that is sent to Datadog")
DATADOG_TAGS = Option("hoodie.metrics.datadog.metric.tags", str, None, "tags that are sent to Datadog, separated by commas")
STATSD_ADDRESS = Option("pyhudi.metrics.statsd.address", str, "127.0.0.1:8125", "UDP address of StatsD or the Datadog agent")
CSV_PATH = Option("pyhudi.metrics.csv.path", str, None, "local file that metrics are appended to")

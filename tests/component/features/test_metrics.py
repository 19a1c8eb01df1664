"""Metrics of writes and table services: Hudi's names, reporters, and no effect on the operations."""

from __future__ import annotations

import csv
import itertools
import json
import logging
import pickle
import re
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.features.metrics import observer, reporters
from pyhudi.features.metrics.operation_metrics import metric_prefix
from pyhudi.operations.commit.results import IngestedBatch
from pyhudi.storage.environment import ReplayEnvironment
from tests.support.http_receiver import HttpReceiver, http_receiver
from tests.support.ingestion import write_lines

_numbers = itertools.count()
NOW_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z

# Names below `<prefix>.commit.` and `<prefix>.compaction.` that Hudi 1.1.1 prints with its CONSOLE reporter.
HUDI_COMMIT_NAMES = {
    *("commitTime", "duration", "totalBytesWritten", "totalCompactedRecordsUpdated", "totalCreateTime", "totalFilesInsert"),
    *("totalFilesUpdate", "totalInsertRecordsWritten", "totalLogFilesCompacted", "totalLogFilesSize", "totalPartitionsWritten"),
    *("totalRecordsDeleted", "totalRecordsWritten", "totalScanTime", "totalUpdateRecordsWritten", "totalUpsertTime"),
}
HUDI_STATE_NAMES = {
    *("clean.pendingCleanInstantCount", "clustering.pendingClusteringInstantCount", "compaction.pendingCompactionInstantCount"),
    *("rollback.pendingRollbackInstantCount", "metadata.isBloomFilterEnabled", "metadata.isColSatsEnabled"),
    *("metadata.isEnabled", "metadata.isRliEnabled"),
}


@pytest.fixture
def receiver() -> Iterator[HttpReceiver]:
    with http_receiver() as running:
        yield running


def new_table(uri: str | None = None, **more: Any) -> hp.Table:
    uri = uri or f"memory://metrics-{next(_numbers)}/t"
    return hp.Table.create(uri, name="t", record_key="id", partition_by="part", ordering="ts", **more)


def rows(*ids: int, part: str = "a", ts: int = 1) -> pa.Table:
    return pa.table({"id": list(ids), "part": [part] * len(ids), "ts": [ts] * len(ids)})


def to_csv(folder: Path, **more: Any) -> dict[str, Any]:
    path = folder / f"{next(_numbers)}.csv"
    return {"hoodie.metrics.on": True, "pyhudi.metrics.reporters": "csv", "pyhudi.metrics.csv.path": str(path), **more}


def reported(options: dict[str, Any]) -> dict[str, float]:
    """The last value of each metric."""
    path = Path(options["pyhudi.metrics.csv.path"])
    if not path.exists():
        return {}
    with path.open() as file:
        return {line["name"]: float(line["value"]) for line in csv.DictReader(file)}


def below(values: dict[str, float], prefix: str) -> set[str]:
    return {name.removeprefix(prefix) for name in values if name.startswith(prefix) and ".pyhudi." not in name}


def test_a_write_has_the_metrics_of_hudi(tmp_path: Path) -> None:
    table, options = new_table(), to_csv(tmp_path)
    table.upsert(rows(1, 2, 3))
    result = table.upsert(pa.concat_tables([rows(1, 4, ts=2), rows(5, part="b")]), options=options)
    values = reported(options)
    assert below(values, "t.commit.") == HUDI_COMMIT_NAMES
    assert below(values, "t.") >= HUDI_STATE_NAMES
    expected = {"totalPartitionsWritten": 2, "totalFilesInsert": 1, "totalFilesUpdate": 1, "totalRecordsWritten": 5}
    expected |= {"totalUpdateRecordsWritten": 1, "totalInsertRecordsWritten": 2, "totalRecordsDeleted": 0}
    expected |= {"totalBytesWritten": result.bytes_written}
    assert {name: values[f"t.commit.{name}"] for name in expected} == expected
    assert values["t.conflict_resolution.success.counter"] == 1
    assert values["t.metadata.isEnabled"] == 1
    phases = {name for name in values if name.startswith("t.commit.pyhudi.")}
    assert phases == {f"t.commit.pyhudi.{phase}.duration" for phase in result.seconds}


def test_services_have_the_metrics_of_hudi(tmp_path: Path) -> None:
    options, manual = to_csv(tmp_path), {"hoodie.compact.inline": False, "hoodie.clean.automatic": False}
    table = hp.Table(new_table(table_type="mor").uri, options=manual)
    table.upsert(rows(1, 2))
    table.upsert(rows(1, ts=2), options=options)
    assert below(reported(options), "t.deltacommit.") == HUDI_COMMIT_NAMES
    table.compact(options=options)
    values = reported(options)
    assert below(values, "t.compaction.") == HUDI_COMMIT_NAMES | {
        "pendingCompactionInstantCount",
        "compaction.completed.counter",
        "compaction.requested.counter",
    }
    assert values["t.compaction.totalLogFilesCompacted"] == 1 and values["t.compaction.totalUpdateRecordsWritten"] == 1
    table.bulk_insert(rows(9))
    table.cluster(options=options)
    for number in (20, 21, 22):
        table.upsert(rows(number))
    table.clean(options={**options, "hoodie.clean.commits.retained": 1})
    table.rollback(str(table.upsert(rows(1, ts=9)).instant), options=options)
    values = reported(options)
    assert below(values, "t.clustering.") == HUDI_COMMIT_NAMES | {"pendingClusteringInstantCount"}
    assert values["t.clean.numFilesDeleted"] >= 1 and values["t.rollback.numFilesDeleted"] >= 1
    assert {"t.clean.duration", "t.rollback.duration"} <= set(values)
    bounds = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1}
    table.archive(options={**options, **bounds})
    assert {"t.archive.duration", "t.archive.numInstantsArchived"} <= set(reported(options))


def test_each_commit_is_counted_once(tmp_path: Path) -> None:
    table, options = new_table(), to_csv(tmp_path)
    table.upsert(rows(1, 2))
    table.update({"ts": 5}, where="id = 1", options=options)
    table.delete(where="id = 2", options=options)
    table.merge(rows(1, 7, ts=8), on="id", options=options).when_not_matched_insert_all().execute()
    assert reported(options)["t.conflict_resolution.success.counter"] == 3


def test_options_of_the_table_apply_to_every_operation(tmp_path: Path) -> None:
    options = to_csv(tmp_path, **{"hoodie.metrics.reporter.metricsname.prefix": "team.x", "hoodie.metrics.lock.enable": True})
    table = hp.Table(new_table().uri, options=options)
    table.upsert(rows(1))
    table.savepoint()
    values = reported(options)
    assert "team_x.commit.duration" in values
    assert values["team_x.lock.acquire.attempts"] == values["team_x.lock.acquire.success"] >= 2
    assert metric_prefix(None, "a.b") == "a_b"


def test_failures_are_counted(tmp_path: Path) -> None:
    table, options = new_table(), to_csv(tmp_path)
    hp.register_validator(hp.Validator("no", lambda before, after: False))
    with pytest.raises(hp.ValidationFailed):
        table.upsert(rows(1), options={**options, "hoodie.precommit.validators": "no"})
    assert reported(options)["t.pyhudi.write.failure.counter"] == 1


def ingested(table: str, source: Any, options: dict[str, Any], **settings: Any) -> dict[str, float]:
    """Metrics of an ingestion, without the prefix."""
    config = {"path": table, "name": "t", "record_key": "id", "retries": 0, "source": source, "options": options, **settings}
    hp.Ingest(config, environment=ReplayEnvironment(3, NOW_MS)).run()
    start = "t.deltastreamer."
    return {name.removeprefix(start): value for name, value in reported(options).items() if name.startswith(start)}


def test_an_ingestion_reports_progress_and_lag(tmp_path: Path) -> None:
    table, options = f"memory://metrics-{next(_numbers)}/t", to_csv(tmp_path)
    events: list[hp.OperationEvent] = []
    for number in range(3):
        write_lines(tmp_path / f"in/{number}.json", [{"id": number, "v": 1}, {"id": None, "v": 1}], NOW_MS - 9000 + number)
    sizes = [path.stat().st_size for path in sorted((tmp_path / "in").iterdir())]
    source = {"kind": "files", "path": str(tmp_path / "in")}
    remove = hp.add_listener(lambda event: events.append(event) if event.operation == "ingest" else None)
    try:
        values = ingested(table, source, options, max_bytes=1, error_table=str(tmp_path / "errors"))
    finally:
        remove()
    assert "duration" in values and values["lastSync"] >= NOW_MS
    assert values["sourceBytesToBeIngestedInSyncRound"] == sizes[-1]
    counters = {"batches": 3, "rows": 3, "error_rows": 3, "source_files": 3, "source_bytes": sum(sizes)}
    assert {name: values[f"pyhudi.{name}.counter"] for name in counters} == counters
    waiting = [event.result.remaining for event in events if isinstance(event.result, IngestedBatch)]
    assert waiting == [{"files": left, "bytes": sum(sizes[3 - left :])} for left in (2, 1, 0)] + [{"files": 0, "bytes": 0}]
    assert values["pyhudi.remaining.files"] == values["pyhudi.remaining.bytes"] == 0
    assert [event.figures()["rows"] for event in events] == [1, 1, 1, 0]


@pytest.mark.parametrize(
    ("value", "lag_s"),
    [
        ("2025-12-31 23:00:00", 3600),
        ("2025-12-31T23:00:00+00:00", 3600),
        ("2026-01-01 01:00:00+02", 3600),
        ("2025-12-31", 86_400),
        ("2027-01-01", 0),
        ("20251231", None),
        ("2025-13-31", None),
        ("1234", None),
    ],
)
def test_the_lag_of_a_database_is_the_age_of_the_newest_value(tmp_path: Path, value: str, lag_s: float | None) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection, connection:
        connection.execute("CREATE TABLE orders (id INTEGER, changed TEXT)")
        connection.execute("INSERT INTO orders VALUES (1, ?)", (value,))
    table, source = f"memory://metrics-{next(_numbers)}/t", {"kind": "sql", "table": "orders", "column": "changed"}
    for rows_written in (1, 0):
        # The lag of a source without new rows grows.
        options = to_csv(tmp_path)
        values = ingested(table, {**source, "uri": f"sqlite:///{tmp_path}/shop.db"}, options)
        assert values["pyhudi.rows.counter"] == rows_written
        lag = values.get("pyhudi.lag.seconds")
        assert lag is None if lag_s is None else lag is not None and lag_s <= lag < lag_s + 60


def test_a_failing_source_is_counted(tmp_path: Path) -> None:
    class Broken:
        def read(self, checkpoint: str | None, limit: object) -> None:
            raise ValueError("no answer")

    options = to_csv(tmp_path)
    with pytest.raises(hp.InvalidRequest, match="no answer"):
        ingested(f"memory://metrics-{next(_numbers)}/t", Broken(), options)
    assert reported(options) == {"t.pyhudi.ingest.failure.counter": 1}


def test_a_failing_reporter_is_logged_and_affects_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = new_table()
    options = {"hoodie.metrics.on": True, "hoodie.metrics.reporter.type": "PROMETHEUS_PUSHGATEWAY"}
    options |= {"hoodie.metrics.pushgateway.host": "127.0.0.1", "hoodie.metrics.pushgateway.port": 1}
    options |= {"hoodie.metrics.pushgateway.delete.on.shutdown": False}
    table.upsert(rows(1), options=options)
    assert table.count() == 1 and "did not answer" in caplog.text


def test_the_console_prints_names_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    new_table().upsert(rows(1), options={"hoodie.metrics.on": True, "hoodie.metrics.reporter.type": "console"})
    assert re.search(r"^t\.commit\.totalRecordsWritten\n +value = 1$", capsys.readouterr().out, re.M)


def test_prometheus_scrapes_the_process() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = {"hoodie.metrics.on": True, "hoodie.metrics.reporter.type": "PROMETHEUS", "hoodie.metrics.prometheus.port": port}
    table = new_table()
    table.upsert(rows(1), options=options)
    table.upsert(rows(2), options=options)
    with urlopen(f"http://127.0.0.1:{port}/metrics") as response:
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = response.read().decode()
    assert "# TYPE t_commit_totalRecordsWritten gauge\nt_commit_totalRecordsWritten 2.0\n" in text
    assert "# TYPE t_conflict_resolution_success_counter counter\nt_conflict_resolution_success_counter 2.0\n" in text
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        options["hoodie.metrics.prometheus.port"] = taken.getsockname()[1]
        with pytest.raises(hp.InvalidRequest, match="cannot be opened"):
            table.upsert(rows(3), options=options)


def test_the_push_gateway_gets_the_group_of_hudi_and_loses_it_at_exit(receiver: HttpReceiver) -> None:
    """Hudi 1.1.1 posts to /metrics/job/<job>/<label>/<value>, and deletes that group when the process ends."""
    options = {
        "hoodie.metrics.on": True,
        "hoodie.metrics.reporter.type": "PROMETHEUS_PUSHGATEWAY",
        "hoodie.metrics.pushgateway.host": "127.0.0.1",
        "hoodie.metrics.pushgateway.port": receiver.port,
        "hoodie.metrics.pushgateway.job.name": "job",
        "hoodie.metrics.pushgateway.random.job.name.suffix": False,
        "hoodie.metrics.pushgateway.report.labels": "a:b,c:d/e",
    }
    program = (
        "import pyarrow as pa, pyhudi as hp\n"
        "t = hp.Table.create('memory://push/t', name='t', record_key='id', ordering='ts')\n"
        f"t.upsert(pa.table({{'id': [1], 'ts': [1]}}), options={options!r})\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert [(r.method, r.path) for r in receiver.requests] == [
        ("POST", "/metrics/job/job/a/b/c/d%2Fe"),
        ("DELETE", "/metrics/job/job/a/b/c/d%2Fe"),
    ]
    assert b"t_commit_totalRecordsWritten 1.0\n" in receiver.requests[0].body


def test_datadog_gets_a_series(receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setitem(reporters.DATADOG_URLS, "EU", f"{receiver.url}/api/v1/series")
    prefix = "hoodie.metrics.datadog"
    options = {"hoodie.metrics.on": True, "hoodie.metrics.reporter.type": "DATADOG", f"{prefix}.api.key": "key-secret"}
    options |= {f"{prefix}.api.site": "EU", f"{prefix}.metric.prefix": "lake", f"{prefix}.metric.tags": "a:1,b"}
    options |= {f"{prefix}.metric.host": "h"}
    observer.open_observer.cache_clear()
    table = new_table()
    table.upsert(rows(1), options=options)
    receiver.statuses[:] = [403]
    with caplog.at_level(logging.DEBUG):
        table.upsert(rows(1), options=options)
    assert "status 403" in caplog.text and "key-secret" not in caplog.text
    observer.open_observer.cache_clear()
    request = receiver.requests[0]
    assert {name.lower(): value for name, value in request.headers.items()}["dd-api-key"] == "key-secret"
    series = {entry["metric"]: entry for entry in json.loads(request.body)["series"]}
    found = series["lake.t.commit.totalRecordsWritten"]
    assert found["points"][0][1] == 1 and found["host"] == "h" and found["tags"] == ["a:1", "b"]


def test_statsd_gets_gauges_and_counters() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(10)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        options = {"hoodie.metrics.on": True, "pyhudi.metrics.reporters": "STATSD", "pyhudi.metrics.statsd.address": address}
        new_table().upsert(rows(1), options=options)
        lines: list[bytes] = []
        while b"t.conflict_resolution.success.counter:1|c" not in lines or b"t.commit.totalRecordsWritten:1|g" not in lines:
            datagram = server.recv(65536)
            assert len(datagram) <= 1400
            lines += datagram.splitlines()


def test_opentelemetry_gets_metrics_and_a_span_for_each_phase() -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    reader, exporter, tracing = InMemoryMetricReader(), InMemorySpanExporter(), TracerProvider()
    tracing.add_span_processor(SimpleSpanProcessor(exporter))
    metrics.set_meter_provider(MeterProvider([reader]))
    trace.set_tracer_provider(tracing)
    options = {"hoodie.metrics.on": True, "pyhudi.metrics.reporters": "OPENTELEMETRY"}
    table = new_table()
    result = table.upsert(rows(1, 2), options=options)
    data = reader.get_metrics_data()
    assert data is not None
    found = {metric.name: metric for scope in data.resource_metrics[0].scope_metrics for metric in scope.metrics}
    (point,) = found["t.commit.totalrecordswritten"].data.data_points
    assert getattr(point, "value", None) == 2 and dict(point.attributes or {}) == {"table": "t", "uri": table.uri}
    spans = exporter.get_finished_spans()
    whole = next(span for span in spans if span.name == "pyhudi upsert")
    assert dict(whole.attributes or {})["instant"] == result.instant
    phases = [span for span in spans if span.parent is not None and span.parent.span_id == whole.context.span_id]
    assert [span.name for span in phases] == [f"pyhudi upsert {phase}" for phase in result.seconds]
    times = [time or 0 for span in phases for time in (span.start_time, span.end_time)]
    assert times == sorted(times) and (whole.start_time or 0) <= times[0] and times[-1] <= (whole.end_time or 0)


def test_the_dashboard_shows_metrics_that_exist(tmp_path: Path) -> None:
    options = to_csv(tmp_path, **{"hoodie.metrics.lock.enable": True})
    table = new_table()
    table.upsert(rows(1), options=options)
    table.bulk_insert(rows(2), options=options)
    table.cluster(options=options)
    hp.register_validator(hp.Validator("none", lambda before, after: False))
    with pytest.raises(hp.ValidationFailed):
        table.upsert(rows(3), options={**options, "hoodie.precommit.validators": "none"})
    write_lines(tmp_path / "in/1.json", [{"id": 1}, {"id": None}], NOW_MS)
    source = {"kind": "files", "path": str(tmp_path / "in")}
    ingested(f"{table.uri}-ingested", source, options, error_table=str(tmp_path / "errors"))
    names = [re.sub("[^a-zA-Z0-9_:]", "_", name) for name in reported(options)]
    dashboard = json.loads((Path(__file__).parents[3] / "docs" / "grafana-dashboard.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(queries) >= 10
    for query in queries:
        (pattern,) = re.findall(r'__name__=~"([^"]+)"', query)
        assert any(re.fullmatch(pattern.replace("${table}", "t"), name) for name in names), query


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "requires a reporter"),
        ({"hoodie.metrics.reporter.type": "GRAPHITE"}, "GRAPHITE is not supported"),
        ({"hoodie.metrics.reporter.type": "JMX"}, "JMX is not supported"),
        ({"hoodie.metrics.reporter.type": "CLOUDWATCH"}, "CLOUDWATCH is not supported"),
        ({"hoodie.metrics.reporter.type": "PROMETEUS"}, "none of CONSOLE"),
        ({"pyhudi.metrics.reporters": "STATS"}, "no reporter is named STATS"),
        ({"pyhudi.metrics.reporters": "CSV"}, "requires option pyhudi.metrics.csv.path"),
        ({"pyhudi.metrics.reporters": "STATSD", "pyhudi.metrics.statsd.address": "x"}, "not host:port"),
        ({"hoodie.metrics.reporter.type": "DATADOG"}, "requires option hoodie.metrics.datadog.api.key"),
        (
            {"hoodie.metrics.reporter.type": "PROMETHEUS_PUSHGATEWAY", "hoodie.metrics.pushgateway.report.labels": "a"},
            "not name:value",
        ),
        ({"hoodie.metrics.reporter.class": "x.Y"}, "refused"),
        ({"hoodie.metrics.reporter.typ": "x"}, "unknown"),
    ],
)
def test_wrong_metrics_options_are_rejected_before_the_write(options: dict[str, Any], text: str) -> None:
    table = new_table()
    with pytest.raises(hp.InvalidRequest, match=text):
        table.upsert(rows(1), options={"hoodie.metrics.on": True, **options})
    assert not table.timeline().instants


def test_a_table_with_metrics_is_pickled(tmp_path: Path) -> None:
    options = to_csv(tmp_path)
    table = hp.Table(new_table(str(tmp_path / "t")).uri, options=options)
    pickle.loads(pickle.dumps(table)).upsert(rows(1))
    assert reported(options)["t.commit.totalRecordsWritten"] == 1


def test_without_metrics_nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table()
    monkeypatch.setattr("pyhudi.features.load", None)
    table.upsert(rows(1))
    assert table.context.observer is None

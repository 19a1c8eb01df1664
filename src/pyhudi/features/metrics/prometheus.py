"""Prometheus: a scrape endpoint of this process, and the push gateway. Dots in names become underscores, as in Hudi."""

from __future__ import annotations

import atexit
import os
import re
import secrets
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

from pyhudi.errors import HudiError, InvalidRequest
from pyhudi.features.metrics.reporters import Sample, send
from pyhudi.operations.commit.events import OperationEvent
from pyhudi.operations.commit.metrics_settings import MetricsSettings
from pyhudi.options.metrics_options import PROMETHEUS_PORT, PUSH_LABELS

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PUSH_TIMEOUT_S = 5


class Values:
    """Last value of each metric, as Prometheus' text."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._values: dict[str, Sample] = {}

    def update(self, samples: Sequence[Sample]) -> None:
        """Replace the values of metrics."""
        with self._mutex:
            self._values.update((sample.name, sample) for sample in samples)

    def text(self) -> str:
        """Return all values in the text format."""
        with self._mutex:
            samples = sorted(self._values.items())
        lines = []
        for name, sample in samples:
            exposed = re.sub(r"[^a-zA-Z0-9_:]", "_", name)
            exposed = f"_{exposed}" if exposed[:1].isdigit() else exposed
            metric_type = "gauge" if sample.increment is None else "counter"
            lines.append(f"# TYPE {exposed} {metric_type}\n{exposed} {float(sample.value)!r}\n")
        return "".join(lines)


class ScrapeEndpoint:
    """HTTP endpoint of this process, at any path."""

    def __init__(self, port: int) -> None:
        self.values = values = Values()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = values.text().encode()
                self.send_response(200)
                self.send_header("Content-Type", _CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                return

        try:
            server = ThreadingHTTPServer(("", port), Handler)
        except OSError as error:
            raise InvalidRequest(
                f"option {PROMETHEUS_PORT}={port}: the port cannot be opened ({error.strerror}); choose another port"
            ) from error
        threading.Thread(target=server.serve_forever, name=f"pyhudi-metrics-{port}", daemon=True).start()

    def report(self, event: OperationEvent, samples: Sequence[Sample]) -> None:
        self.values.update(samples)


_endpoints: dict[tuple[int, int], ScrapeEndpoint] = {}
_mutex = threading.Lock()


def scrape_endpoint(port: int) -> ScrapeEndpoint:
    """Return the endpoint of this process at a port, which all its tables share."""
    with _mutex:
        key = os.getpid(), port
        if key not in _endpoints:
            _endpoints[key] = ScrapeEndpoint(port)
        return _endpoints[key]


class PushGateway:
    """Pushes all metrics of a table after each operation, in the group of its job and labels."""

    def __init__(self, settings: MetricsSettings, table_name: str) -> None:
        job = settings.push_job or table_name
        suffix = f"-{secrets.token_hex(4)}" if settings.push_suffix else ""
        labels = "".join(f"/{_part(name)}/{_part(value)}" for name, value in parse_labels(settings.push_labels).items())
        host = f"[{settings.push_host}]" if ":" in settings.push_host else settings.push_host
        self._url = f"http://{host}:{settings.push_port}/metrics/job/{_part(job + suffix)}{labels}"
        self._values = Values()
        self._process = os.getpid()
        if settings.push_delete:
            atexit.register(self._delete)

    def report(self, event: OperationEvent, samples: Sequence[Sample]) -> None:
        self._values.update(samples)
        send(self._url, self._values.text().encode(), _PUSH_TIMEOUT_S, {}, _CONTENT_TYPE)

    def _delete(self) -> None:
        if self._process == os.getpid():
            with suppress(HudiError):
                send(self._url, b"", _PUSH_TIMEOUT_S, {}, _CONTENT_TYPE, method="DELETE")


def parse_labels(text: str | None) -> Mapping[str, str]:
    """Parse `name:value,name:value`. Raises InvalidRequest."""
    labels = {}
    for part in (text or "").split(","):
        if not part.strip():
            continue
        name, colon, value = (piece.strip() for piece in part.partition(":"))
        if not colon or not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name) or not value:
            raise InvalidRequest(f"option {PUSH_LABELS}={text}: {part.strip()!r} is not name:value")
        labels[name] = value
    return labels


def _part(text: str) -> str:
    return quote(text, safe="")

"""Reporters without a server of their own: console, CSV, StatsD and Datadog.

A reporter raises on failure; the observer logs it. Its message contains no key.
"""

from __future__ import annotations

import csv
import json
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pyhudi.errors import InvalidRequest, StorageUnavailable
from pyhudi.operations.commit.events import OperationEvent
from pyhudi.options.metrics_options import CSV_PATH, DATADOG_KEY, STATSD_ADDRESS
from pyhudi.storage.http_client import send_request


@dataclass(frozen=True, slots=True)
class Sample:
    """One metric with its full name.

    Attributes:
        name: Full name.
        value: Current value of a gauge, or the total of a counter in this process.
        increment: By how much a counter grew; None for a gauge.
    """

    name: str
    value: float
    increment: float | None = None


class Reporter(Protocol):
    """Sends the metrics of an operation."""

    def report(self, event: OperationEvent, samples: Sequence[Sample]) -> None:
        """Send the samples of an operation that has just ended."""
        ...


class Console:
    """Prints each metric on standard output."""

    def report(self, event: OperationEvent, samples: Sequence[Sample]) -> None:
        sys.stdout.write("".join(f"{sample.name}\n             value = {_number(sample.value)}\n" for sample in samples))
        sys.stdout.flush()


class CsvFile:
    """Appends a line for each metric: epoch seconds, table, operation, name, value."""

    def __init__(self, path: str | None) -> None:
        if not path:
            raise InvalidRequest(f"reporter CSV requires option {CSV_PATH}")
        self._path = Path(path).expanduser()
        self._mutex = threading.Lock()

    def report(self, event: OperationEvent, samples: Sequence[Sample]) -> None:
        now = f"{time.time():.3f}"
        with self._mutex, self._path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            if file.tell() == 0:
                writer.writerow(("time", "table", "operation", "name", "value"))
            writer.writerows((now, event.table, event.operation, sample.name, _number(sample.value)) for sample in samples)


class StatsD:
    """Sends gauges and counters by UDP, several in a datagram."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise InvalidRequest(f"option {STATSD_ADDRESS}={address} is not host:port")
        self._address = host.strip("[]"), int(port)

    def report(self, event: OperationEvent, samples: Sequence[Sample]) -> None:
        family, socket_type, protocol, _, address = socket.getaddrinfo(*self._address, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket_type, protocol) as sender:
            datagram = b""
            for sample in samples:
                line = f"{sample.name}:{_statsd_value(sample)}\n".encode()
                if len(datagram) + len(line) > _DATAGRAM_BYTES:
                    sender.sendto(datagram, address)
                    datagram = b""
                datagram += line
            if datagram:
                sender.sendto(datagram, address)


@dataclass(frozen=True, slots=True)
class Datadog:
    """Posts the metrics to Datadog's series API.

    Attributes:
        key: API key.
        url: URL of the API.
        timeout_s: Seconds for one request.
        prefix: Prefix of names, before a dot.
        host: Host that is sent.
        tags: Tags that are sent.
    """

    key: str | None = field(repr=False)
    url: str
    timeout_s: int
    prefix: str | None = None
    host: str | None = None
    tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.key:
            raise InvalidRequest(f"reporter DATADOG requires option {DATADOG_KEY}")

    def report(self, event: OperationEvent, samples: Sequence[Sample]) -> None:
        now, before = int(time.time()), f"{self.prefix}." if self.prefix else ""
        shared = {"tags": list(self.tags), **({"host": self.host} if self.host else {})}
        series = [
            {"metric": before + sample.name, "points": [[now, sample.value]], "type": "gauge", **shared} for sample in samples
        ]
        body = json.dumps({"series": series}).encode()
        send(self.url, body, self.timeout_s, {"DD-API-KEY": self.key or ""}, "application/json")


DATADOG_URLS = {site: f"https://app.datadoghq.{domain}/api/v1/series" for site, domain in (("US", "com"), ("EU", "eu"))}

_DATAGRAM_BYTES = 1400


def send(url: str, body: bytes, timeout_s: float, headers: dict[str, str], content_type: str, *, method: str = "POST") -> None:
    """Send an HTTP request. Raises StorageUnavailable, without the URL and the headers."""
    headers = {"Content-Type": content_type, **headers}
    failure = "the receiver of metrics did not answer"
    status, _ = send_request(method, url, failure=failure, timeout_s=timeout_s, headers=headers, body=body)
    if status >= 300:
        raise StorageUnavailable(f"the receiver of metrics answered with status {status}")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _statsd_value(sample: Sample) -> str:
    return f"{_number(sample.value)}|g" if sample.increment is None else f"{_number(sample.increment)}|c"

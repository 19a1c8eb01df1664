"""Receivers of commit messages: Hudi's HTTP and Kafka callbacks, and functions of Python.

An error never contains the URL, the key or the headers of a receiver, which may be secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, cast
from urllib.parse import urlsplit

from pyhudi.errors import InvalidRequest, StorageUnavailable, Unsupported, get_logger
from pyhudi.features.commit_callbacks.commit_message import CommitMessage
from pyhudi.operations.commit.commit_callbacks import CallbackSettings
from pyhudi.options.callback_options import (
    CALLBACK_CLASS,
    CALLBACK_HEADERS,
    CALLBACK_URL,
    HTTP_CALLBACK,
    KAFKA_CALLBACK,
    KAFKA_SERVERS,
    KAFKA_TOPIC,
)
from pyhudi.options.plugins import Registry
from pyhudi.storage.http_client import send_request

Receiver = Callable[[CommitMessage], object]

_LOG = get_logger("pyhudi.features.commit_callbacks.kafka")
_KEY_HEADER = "HUDI-CALLBACK-KEY"
_TEMPORARY = frozenset({408, 425, 429})
_registered: Registry[Receiver] = Registry("commit callback")


class Rejected(InvalidRequest):
    """The receiver rejects the message; a retry would fail again."""


def register_commit_callback(name: str, function: Callable[[CommitMessage], object]) -> None:
    """Register a commit callback in this process under a name for `hoodie.write.commit.callback.class`, replacing an
    earlier one.

    Args:
        name: The name.
        function: Called with the message of each commit, in the thread of the write. An exception counts as a failed
            delivery, and the call is repeated. It may be called twice for one commit.

    Raises:
        InvalidRequest: The name is empty or has a comma, or the function is not callable.
    """
    if not callable(cast(object, function)):
        raise InvalidRequest(f"register_commit_callback takes a function of a CommitMessage, not {function!r}")
    if "," in name or name != name.strip():
        raise InvalidRequest(f"register_commit_callback: name={name!r} has a comma or surrounding blanks")
    _registered.register(name, function)


def check_settings(settings: CallbackSettings) -> None:
    """Check the receivers before anything is written. Raises as `CallbackSettings.of`."""
    if not settings.names:
        raise InvalidRequest(f"option {CALLBACK_CLASS} names no callback")
    for name in settings.names:
        find_receiver(settings, name)


def find_receiver(settings: CallbackSettings, name: str) -> Receiver:
    """Return the receiver of a name. Raises as `CallbackSettings.of`."""
    if name in (HTTP_CALLBACK, HTTP_CALLBACK.rpartition(".")[2]):
        return _http_receiver(settings)
    if name in (KAFKA_CALLBACK, KAFKA_CALLBACK.rpartition(".")[2]):
        return _kafka_receiver(settings)
    function = _registered.find(name)
    if function is not None:
        return function
    if name.startswith("org.apache.hudi."):
        raise Unsupported(f"option {CALLBACK_CLASS}={name} is not supported: use {HTTP_CALLBACK} or {KAFKA_CALLBACK}")
    raise _registered.unknown(CALLBACK_CLASS, name, (HTTP_CALLBACK, KAFKA_CALLBACK), "register_commit_callback")


def _http_receiver(settings: CallbackSettings) -> Receiver:
    if not settings.url:
        raise InvalidRequest(f"the HTTP callback requires option {CALLBACK_URL}")
    try:
        parts = urlsplit(settings.url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidRequest(f"option {CALLBACK_URL} is not an http or https URL with a host")
    headers = {
        _KEY_HEADER: settings.api_key,
        "Content-Type": "application/json; charset=UTF-8",
        **_parse_headers(settings.headers or ""),
    }
    address = f"{host}:{port}" if port else host
    url, timeout_s = settings.url, settings.timeout_s

    def post(message: CommitMessage) -> None:
        body = message.to_json().encode()
        failure = f"{address} did not answer"
        status, _ = send_request("POST", url, failure=failure, timeout_s=timeout_s, headers=headers, body=body)
        if status >= 500 or status in _TEMPORARY:
            raise StorageUnavailable(f"{address} answered with status {status}")
        if status >= 300:
            raise Rejected(f"{address} answered with status {status}")

    return post


def _parse_headers(text: str) -> Mapping[str, str]:
    headers = {}
    for part in text.split(";"):
        if not part.strip():
            continue
        name, colon, value = part.partition(":")
        if not colon or not name.strip() or any(c in part for c in "\r\n"):
            raise InvalidRequest(f"option {CALLBACK_HEADERS} has a part that is not Name:value")
        headers[name.strip()] = value.strip()
    return headers


def _kafka_receiver(settings: CallbackSettings) -> Receiver:
    topic = settings.topic
    if not settings.servers or not topic:
        raise InvalidRequest(f"the Kafka callback requires options {KAFKA_SERVERS} and {KAFKA_TOPIC}")
    if find_spec("confluent_kafka") is None:
        raise Unsupported('the Kafka callback requires confluent-kafka: pip install "pyhudi[kafka]"')

    def send(message: CommitMessage) -> None:
        from confluent_kafka import KafkaException, Producer

        errors: list[Any] = []
        timeout_ms = settings.timeout_s * 1000
        arguments: dict[str, Any] = {} if settings.partition is None else {"partition": settings.partition}
        try:
            producer = Producer(producer_settings(settings, timeout_ms))
            producer.produce(
                topic,
                message.to_json().encode(),
                key=message.table.encode(),
                on_delivery=lambda error, _: errors.append(error),
                **arguments,
            )
            producer.flush(settings.timeout_s)
        except (KafkaException, BufferError) as error:
            raise StorageUnavailable(f"Kafka topic {topic}: {error}") from None
        # An error of the client cannot be compared with None.
        if not errors or errors[0] is not None:
            reason = errors[0].str() if errors else f"no acknowledgement within {settings.timeout_s} s"
            raise StorageUnavailable(f"Kafka topic {topic}: {reason}")

    return send


def producer_settings(settings: CallbackSettings, timeout_ms: int) -> dict[str, Any]:
    """Settings of the Kafka client."""
    return {
        "bootstrap.servers": settings.servers,
        "acks": settings.acks,
        "retries": settings.kafka_retries,
        "message.timeout.ms": timeout_ms,
        "logger": _LOG,
    }

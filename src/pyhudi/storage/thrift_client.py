"""Thrift clients over thriftpy2: server addresses, message definitions, and a connection to the first available server."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyhudi.errors import InvalidRequest, StorageUnavailable

_DEFAULT_PORT = 9083


def metastore_address(option: str, uri: str) -> tuple[str, int]:
    """Parse `thrift://host:port` into host and port; the default port is 9083.

    Raises:
        InvalidRequest: Malformed URI; the message contains the option.
    """
    try:
        parsed = urlsplit(uri)
        host, port = parsed.hostname, parsed.port or _DEFAULT_PORT
    except ValueError:
        host, port = None, 0
    if host is None or parsed.scheme != "thrift":
        raise InvalidRequest(f"{option}={uri}: expected thrift://host:port")
    return host, port


def load_messages(description: Path, module: str, user: str, *, extra: str = "hive") -> Any:
    """Load the messages and the service of a Thrift definition.

    Args:
        description: Path of the Thrift file.
        module: Name of the generated module.
        user: The feature that needs it, for the error message.
        extra: The extra that installs thriftpy2, for the error message.

    Raises:
        InvalidRequest: thriftpy2 is not installed.
    """
    try:
        import thriftpy2
    except ImportError:
        raise InvalidRequest(f'{user} needs thriftpy2: pip install "pyhudi[{extra}]"') from None
    return thriftpy2.load(str(description), module)


def connect_to_first(
    service: Any, servers: Iterable[tuple[str, int]], where: str, timeout_ms: int, *, server: str = "Hive metastore"
) -> Any:
    """Connect to the first server that answers.

    Args:
        service: Thrift service.
        servers: Hosts and ports, in order of preference.
        where: Subject of the error message.
        timeout_ms: Timeout in milliseconds.
        server: Type of the servers, for the error message.

    Raises:
        StorageUnavailable: No server answers.
    """
    from thriftpy2.rpc import make_client
    from thriftpy2.thrift import TException

    failures = []
    for host, port in servers:
        try:
            return make_client(service, host, port, timeout=timeout_ms)
        except (TException, OSError) as error:
            failures.append(f"{host}:{port}: {error!r}")
    raise StorageUnavailable(f"{where}: no {server} can be reached: {'; '.join(failures)}")

"""Servers that speak Thrift, over thriftpy2: where they are, their messages, and a connection to the first that answers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyhudi.errors import InvalidRequest, StorageUnavailable

_DEFAULT_PORT = 9083


def metastore_address(option: str, uri: str) -> tuple[str, int]:
    """Host and port of `thrift://host:port`; the port is 9083 when left out.  Raises InvalidRequest, naming the option."""
    try:
        parsed = urlsplit(uri)
        host, port = parsed.hostname, parsed.port or _DEFAULT_PORT
    except ValueError:
        host, port = None, 0
    if host is None or parsed.scheme != "thrift":
        raise InvalidRequest(f"{option}={uri}: expected thrift://host:port")
    return host, port


def load_messages(description: Path, module: str, user: str, *, extra: str = "hive") -> Any:
    """The messages and the service that a description tells of.  Raises InvalidRequest where thriftpy2 is not installed.

    user: who needs them, and extra: which brings it, for the message.
    """
    try:
        import thriftpy2
    except ImportError:
        raise InvalidRequest(f'{user} needs thriftpy2: pip install "pyhudi[{extra}]"') from None
    return thriftpy2.load(str(description), module)


def connect_to_first(
    service: Any, servers: Iterable[tuple[str, int]], where: str, timeout_ms: int, *, server: str = "Hive metastore"
) -> Any:
    """A client of the first server that answers.  Raises StorageUnavailable when none does.  server: what they are."""
    from thriftpy2.rpc import make_client
    from thriftpy2.thrift import TException

    troubles = []
    for host, port in servers:
        try:
            return make_client(service, host, port, timeout=timeout_ms)
        except (TException, OSError) as error:
            troubles.append(f"{host}:{port}: {error!r}")
    raise StorageUnavailable(f"{where}: no {server} can be reached: {'; '.join(troubles)}")

"""Storage options of HDFS, including their names in other tools, and Hadoop's configuration files.

    hdfs://namenode[:8020]/path     hdfs://nameservice/path     webhdfs://namenode[:9870]/path

A `webhdfs` URI contains the HTTP address. For `hdfs` it is the first available of: the option `http_address`
(`host:port`, comma-separated for high availability); `dfs.namenode.http-address` in `hdfs-site.xml` of HADOOP_CONF_DIR,
for a nameservice those of its NameNodes; port 9870 of the URI's host. The user is the option `user`, else
HADOOP_USER_NAME, else the user of the process.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.properties import split_list
from pyhudi.storage.deadlines import LIMIT_OPTIONS, CallLimits, call_limits, parse_seconds
from pyhudi.storage.process_identity import user_name
from pyhudi.storage.storage_option_names import parse_boolean
from pyhudi.storage.uris import Location

HDFS_SCHEMES = ("hdfs", "webhdfs")

_HTTP_PORT = 9870
_CONNECT_TIMEOUT_S = 10.0
_ADDRESS = re.compile(r"[^\s:/,@]+:\d{1,5}")

_KERBEROS = "Kerberos, delegation tokens and TLS are not supported for HDFS: hadoop.security.authentication must be simple"
_URI_NAMES = "the URI of the table contains it: leave it out"

# Option names of fsspec, PyIceberg, pyarrow and Hadoop -> PyHudi's names.
_SAME = {
    "user.name": "user",
    "hadoop.user.name": "user",
    "hdfs.user": "user",
    "dfs.replication": "replication",
    "dfs.blocksize": "blocksize",
    "default_block_size": "blocksize",
    "dfs.namenode.http-address": "http_address",
}
_KNOWN = ("http_address", "user", "replication", "blocksize", "connect_timeout", *LIMIT_OPTIONS)
_SECURED = frozenset(
    {
        *("kerb_ticket", "kerb_kwargs", "kerberos_ticket", "hdfs.kerberos_ticket", "token", "delegation", "delegation_token"),
        *("ssl_ca_path", "password"),
    }
)
# Accepted only with the value that requests the default behaviour.
_SWITCHES = frozenset({"kerberos", "use_https"})
_REFUSED = {
    "host": _URI_NAMES,
    "port": _URI_NAMES,
    "hdfs.host": _URI_NAMES,
    "hdfs.port": _URI_NAMES,
    "proxy_to": "impersonation of another user is not supported: set user",
    "data_proxy": "DataNodes are addressed by the names that the NameNode returns: leave it out",
    "buffer_size": "request sizes are chosen automatically: leave it out",
    "extra_conf": "pass the options individually, or a hdfs-site.xml in HADOOP_CONF_DIR",
    "fs.defaultfs": _URI_NAMES,
}


@dataclass(frozen=True, slots=True)
class HdfsSettings:
    """Connection settings.

    Attributes:
        addresses: `host:port` of the NameNodes' HTTP servers.
        user: User name sent with every request.
        new_files: Parameters of created files (`replication`, `blocksize`).
        limits: Time limits of calls.
        connect_timeout_s: Seconds to wait for a connection.
    """

    addresses: tuple[str, ...]
    user: str
    new_files: tuple[tuple[str, str], ...]
    limits: CallLimits
    connect_timeout_s: float


def hdfs_settings(location: Location, options: Mapping[str, str]) -> HdfsSettings:
    """Parse the options of a table in HDFS.  Reads Hadoop's configuration files; sends no request.

    Raises:
        InvalidRequest: Unknown or invalid option.
        Unsupported: An option or configuration requires Kerberos or TLS.
    """
    named: dict[str, str] = {}
    for option_name, value in options.items():
        name = _name(location, option_name, value)
        if name is None:
            continue
        if named.get(name, value) != value:
            raise InvalidRequest(f"{location.uri}: two storage options set {name} to different values")
        named[name] = value
    conf = _configuration()
    if conf.get("hadoop.security.authentication", "simple") != "simple":
        raise Unsupported(f"{location.uri}: core-site.xml in HADOOP_CONF_DIR requires Kerberos. {_KERBEROS}")
    return HdfsSettings(
        _addresses(location, named.get("http_address"), conf),
        named.get("user") or os.environ.get("HADOOP_USER_NAME") or user_name(),
        tuple((name, str(_count(name, named[name]))) for name in ("replication", "blocksize") if name in named),
        call_limits(named),
        parse_seconds("connect_timeout", named["connect_timeout"]) if "connect_timeout" in named else _CONNECT_TIMEOUT_S,
    )


def _name(location: Location, option_value: str, value: str) -> str | None:
    """PyHudi's name of an option; None if the option requests the default."""
    name = option_value.lower().removeprefix("spark.hadoop.")
    if name in _SECURED:
        raise Unsupported(f"{location.uri}: storage option {option_value!r}: {_KERBEROS}")
    if name in _SWITCHES:
        if parse_boolean(option_value, value):
            raise Unsupported(f"{location.uri}: storage option {option_value!r}: {_KERBEROS}")
        return None
    if name == "hadoop.security.authentication":
        if value.lower() != "simple":
            raise Unsupported(f"{location.uri}: storage option {option_value!r}: {_KERBEROS}")
        return None
    if name in _REFUSED:
        raise InvalidRequest(f"{location.uri}: storage option {option_value!r} is not supported: {_REFUSED[name]}")
    name = _SAME.get(name, name)
    if name not in _KNOWN:
        near = difflib.get_close_matches(name, (*_KNOWN, *_SAME), 1)
        advice = f"did you mean {near[0]}?" if near else f"HDFS supports {', '.join(_KNOWN)}"
        raise InvalidRequest(f"{location.uri}: storage option {option_value!r} is unknown; {advice}")
    return name


def _addresses(location: Location, option_value: str | None, conf: Mapping[str, str]) -> tuple[str, ...]:
    host, _, port = location.authority.partition(":")
    if location.scheme == "webhdfs":
        if option_value is not None:
            raise InvalidRequest(f"{location.uri}: a webhdfs URI contains the HTTP address: leave http_address out")
        return (f"{host}:{port or _HTTP_PORT}",)
    if option_value is not None:
        return tuple(_address(address.strip()) for address in option_value.split(","))
    nodes = split_list(conf.get(f"dfs.ha.namenodes.{host}"))
    if nodes and not port:
        keys = [f"dfs.namenode.http-address.{host}.{node}" for node in nodes]
        missing = next((key for key in keys if key not in conf), None)
        if missing is not None:
            raise InvalidRequest(f"{location.uri}: hdfs-site.xml in HADOOP_CONF_DIR lacks {missing}; set the option http_address")
        return tuple(_address(_with_host(conf[key], host)) for key in keys)
    address = conf.get(f"dfs.namenode.http-address.{host}") or conf.get("dfs.namenode.http-address") or f"{host}:{_HTTP_PORT}"
    return (_address(_with_host(address, host)),)


def _with_host(address: str, host: str) -> str:
    """Replace the listen address 0.0.0.0 by the host name."""
    return f"{host}{address[7:]}" if address.startswith("0.0.0.0:") else address


def _address(text: str) -> str:
    plain = text.removeprefix("http://").rstrip("/")
    if text.startswith(("https://", "swebhdfs://")):
        raise Unsupported(f"storage option http_address={text!r}: {_KERBEROS}")
    if not _ADDRESS.fullmatch(plain):
        raise InvalidRequest(f"storage option http_address={text!r}: write host:port of the NameNode's HTTP server")
    return plain


def _configuration() -> dict[str, str]:
    """Properties of Hadoop's configuration files; empty if HADOOP_CONF_DIR is not set."""
    folder = os.environ.get("HADOOP_CONF_DIR")
    configuration: dict[str, str] = {}
    for name in ("core-site.xml", "hdfs-site.xml") if folder else ():
        path = Path(folder or "", name)
        try:
            properties = ElementTree.parse(path).getroot().iter("property")
        except FileNotFoundError:
            continue
        except (OSError, ElementTree.ParseError) as error:
            raise InvalidRequest(f"{path}, which HADOOP_CONF_DIR selects, cannot be read: {error}") from error
        for element in properties:
            configuration[(element.findtext("name") or "").strip()] = (element.findtext("value") or "").strip()
    return configuration


def _count(name: str, value: str) -> int:
    if not value.isdecimal() or not int(value):
        raise InvalidRequest(f"storage option {name}={value!r}: write a number above 0")
    return int(value)

"""Storage options of object stores, by the names that people know, as the settings of obstore.

Options are those of obstore with or without the `aws_`, `google_`, `azure_storage_` prefix, in any case, and the Hadoop names
that `_HADOOP_OPTIONS` lists, with or without `spark.hadoop.`.  Unnamed credentials come from the environment or the machine's
role.  An option that nobody knows is InvalidRequest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.properties import shown
from pyhudi.storage.uris import Location

# Long enough for a part over a slow line; the client's own default of 30 seconds is not.
_TIMEOUT = "120s"
_CONNECT_TIMEOUT = "10s"
# For how long a request is sent again.
RETRY_TIMEOUT = timedelta(seconds=60)

KINDS = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gcs",
    "gcs": "gcs",
    "az": "azure",
    "abfs": "azure",
    "abfss": "azure",
}
OBJECT_SCHEMES = tuple(KINDS)

_PREFIXES = {"s3": ("aws_",), "gcs": ("google_",), "azure": ("azure_storage_", "azure_")}

# Names that people know from other tools -> obstore's.
_ALIASES = {
    "s3": {
        "endpoint_url": "endpoint",
        "anonymous": "skip_signature",
        "anon": "skip_signature",
        "token": "session_token",
    },
    "gcs": {
        "endpoint": "base_url",
        "endpoint_url": "base_url",
        "anonymous": "skip_signature",
        "anon": "skip_signature",
        "token": "bearer_token",
        "service_account_path": "service_account",
    },
    "azure": {
        "anonymous": "skip_signature",
        "anon": "skip_signature",
        "access_key": "account_key",
        "sas_token": "sas_key",
        "endpoint_url": "endpoint",
    },
}

# Settings of the HTTP client, not of the store.
_CLIENT_OPTIONS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "timeout",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_url",
        "proxy_ca_certificate",
        "proxy_excludes",
        "root_certificate",
        "user_agent",
    }
)
_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}

# Hadoop's name -> (our name, what becomes of the value).
_HADOOP_OPTIONS: dict[str, tuple[str, Callable[[str], str]]] = {
    "fs.s3a.access.key": ("access_key_id", str),
    "fs.s3a.secret.key": ("secret_access_key", str),
    "fs.s3a.session.token": ("session_token", str),
    "fs.s3a.endpoint": ("endpoint", str),
    "fs.s3a.endpoint.region": ("region", str),
    "fs.s3a.connection.ssl.enabled": ("allow_http", lambda value: _negated("fs.s3a.connection.ssl.enabled", value)),
    "fs.s3a.path.style.access": (
        "virtual_hosted_style_request",
        lambda value: _negated("fs.s3a.path.style.access", value),
    ),
    "fs.s3a.aws.credentials.provider": ("skip_signature", lambda value: _is_anonymous(value)),
    "fs.gs.auth.service.account.json.keyfile": ("service_account", str),
}


def store_settings(
    kind: str, location: Location, options: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Sort options into those of the store, of the HTTP client and of the repeats, each by obstore's names.

    kind: a value of `KINDS`.
    Raises InvalidRequest for two names of one option that contradict each other, and for a value that the option cannot have.
    """
    named: dict[str, tuple[str, str]] = {}
    for given, value in options.items():
        name, meant = _named(kind, location, given, value)
        if name in named and named[name][1] != meant:
            raise InvalidRequest(f"storage options {named[name][0]!r} and {given!r} both set {name}, to different values")
        named[name] = (given, meant)
    config: dict[str, Any] = {}
    client: dict[str, Any] = {"timeout": _TIMEOUT, "connect_timeout": _CONNECT_TIMEOUT}
    retry: dict[str, Any] = {"retry_timeout": RETRY_TIMEOUT}
    for name, (given, value) in named.items():
        if name in ("allow_http", "allow_invalid_certificates"):
            client[name] = _truth(given, value)
        elif name in _CLIENT_OPTIONS:
            client[name] = value
        elif name == "max_retries":
            retry[name] = _count(given, value)
        elif name == "skip_signature":
            config[name] = _truth(given, value)
        else:
            config[name] = value
    endpoint = config.get("endpoint") or config.get("base_url") or ""
    if endpoint and "://" not in endpoint:
        # Hadoop writes the host alone, and says by another option whether it speaks TLS.
        endpoint = f"{'http' if client.get('allow_http') else 'https'}://{endpoint}"
        config["endpoint"] = endpoint
    if endpoint.startswith("http://"):
        client.setdefault("allow_http", True)
    return config, client, retry


def _named(kind: str, location: Location, given: str, value: str) -> tuple[str, str]:
    name = given.lower().removeprefix("spark.hadoop.")
    if kind == "s3":
        name = name.replace(f"fs.s3a.bucket.{location.authority}.", "fs.s3a.")
    if kind == "azure" and name.startswith("fs.azure.account.key"):
        return "account_key", value
    if name in _HADOOP_OPTIONS:
        name, convert = _HADOOP_OPTIONS[name]
        return name, convert(value)
    if name.startswith("fs."):
        known = ", ".join(sorted(_HADOOP_OPTIONS))
        raise InvalidRequest(f"{location.uri}: storage option {given!r} is not one of the Hadoop options known here: {known}")
    for prefix in _PREFIXES[kind]:
        name = name.removeprefix(prefix)
    return _ALIASES[kind].get(name, name), value


def store_target(kind: str, location: Location, config: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The bucket or container, and the settings with the account that an Azure URI may name."""
    if kind != "azure" or "@" not in location.authority:
        return location.authority, config
    container, _, host = location.authority.partition("@")
    account = host.partition(".")[0]
    if config.get("account_name", account) != account:
        raise InvalidRequest(f"{location.uri} names the account {account!r}, the options {config['account_name']!r}")
    return container, {**config, "account_name": account}


def _truth(name: str, value: str) -> bool:
    truth = _TRUTH.get(value.lower())
    if truth is None:
        raise InvalidRequest(f"storage option {name}={shown(name, value)!r}: write true or false")
    return truth


def _negated(name: str, value: str) -> str:
    return "false" if _truth(name, value) else "true"


def _is_anonymous(provider: str) -> str:
    if provider.endswith("AnonymousAWSCredentialsProvider"):
        return "true"
    if provider.endswith(("SimpleAWSCredentialsProvider", "TemporaryAWSCredentialsProvider")):
        return "false"
    raise Unsupported(
        f"fs.s3a.aws.credentials.provider={provider}: only the Simple, Temporary and Anonymous providers are known here; "
        "leave it out to take credentials from the environment or the machine's role"
    )


def _count(name: str, value: str) -> int:
    if not value.isdecimal():
        raise InvalidRequest(f"storage option {name}={shown(name, value)!r}: write a number")
    return int(value)

"""Translate storage options of object stores, including their names in other tools, into settings of obstore.

Options are those of obstore with or without the `aws_`, `google_`, `azure_storage_` prefix, in any case (as delta-rs
and the environment write them), and those of PyIceberg, fsspec and Hadoop listed in `storage_option_names`. Missing
options come from the environment, by obstore's names in upper case, then credentials from the machine's role. Unknown
options are InvalidRequest.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from pyhudi.errors import InvalidRequest
from pyhudi.format.properties import redact_secret
from pyhudi.storage.deadlines import LIMIT_OPTIONS, CallLimits, call_limits
from pyhudi.storage.storage_option_names import (
    AZURE_AUTH,
    AZURE_NEEDS,
    BUCKET_IN_HOST,
    azure_endpoint,
    check_family,
    parse_boolean,
    resolve_option,
)
from pyhudi.storage.uris import Location

PART_BYTES = 8 * 1024 * 1024
"""Size of the parts of an upload, and of ranges that are read concurrently."""

_CONNECT_TIMEOUT = "10s"

STORE_TYPES = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gcs",
    "gcs": "gcs",
    "az": "azure",
    "abfs": "azure",
    "abfss": "azure",
}
OBJECT_SCHEMES = tuple(STORE_TYPES)

_PREFIXES = {"s3": ("aws_",), "gcs": ("google_",), "azure": ("azure_storage_", "azure_")}

# Environment variables for the endpoint, in order of precedence.
_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gcs": ("GOOGLE_BASE_URL",),
    "azure": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}

# Current clients prefer this setting over `endpoint`, and read it from the first of those variables.  Older ones lack
# it.
S3_ENDPOINT = "aws_endpoint_url_s3"

# Settings of the HTTP client, not of the store.
_CLIENT_OPTIONS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_url",
        "proxy_ca_certificate",
        "proxy_excludes",
        "root_certificate",
        "user_agent",
    }
)


def store_settings(
    kind: str, location: Location, options: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, Any], CallLimits]:
    """Split options into settings of the store and of the HTTP client, each by obstore's names, and time limits.

    kind: a value of `STORE_TYPES`.

    Raises:
        InvalidRequest: Two names of one option with different values, or an invalid value.
    """
    named: dict[str, tuple[str, str]] = {}
    for option_name, value in options.items():
        for name, setting in _resolve_hadoop_option(kind, location, option_name, value).items():
            if name in named and named[name][1] != setting:
                raise InvalidRequest(
                    f"storage options {named[name][0]!r} and {option_name!r} both set {name}, to different values"
                )
            named[name] = (option_name, setting)
    _check_azure_auth(named)
    config: dict[str, Any] = {}
    client: dict[str, Any] = {"connect_timeout": _CONNECT_TIMEOUT}
    times: dict[str, str] = {}
    repetitions: int | None = None
    for name, (option_name, value) in named.items():
        if name in ("allow_http", "allow_invalid_certificates"):
            client[name] = parse_boolean(option_name, value)
        elif name in _CLIENT_OPTIONS:
            client[name] = value
        elif name == "max_retries":
            repetitions = _count(option_name, value)
        elif name in LIMIT_OPTIONS:
            times[name] = value
        elif name in ("skip_signature", "use_emulator", BUCKET_IN_HOST):
            config[name] = parse_boolean(option_name, value)
        else:
            config[name] = value
    _normalize_endpoint(kind, location, config, client)
    return config, client, call_limits(times, repetitions)


def upload_settings(limits: CallLimits) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of the HTTP client and of retries for uploads, whose parts the client repeats by itself."""
    retry: dict[str, Any] = {"retry_timeout": timedelta(seconds=limits.of_call(PART_BYTES))}
    if limits.repetitions is not None:
        retry["max_retries"] = limits.repetitions
    return {"timeout": timedelta(seconds=limits.of_request(PART_BYTES))}, retry


def _resolve_hadoop_option(kind: str, location: Location, option_value: str, value: str) -> Mapping[str, str]:
    name = option_value.lower().removeprefix("spark.hadoop.")
    if kind == "s3":
        name = name.replace(f"fs.s3a.bucket.{location.authority}.", "fs.s3a.")
    plain = name
    for prefix in _PREFIXES[kind]:
        plain = plain.removeprefix(prefix)
    for known in (name, plain):
        settings = resolve_option(kind, location.uri, known, option_value, value)
        if settings is not None:
            return settings
    check_family(kind, location.uri, name, option_value)
    return {plain: value}


def _check_azure_auth(options: dict[str, tuple[str, str]]) -> None:
    option_name, auth_type = options.pop(AZURE_AUTH, ("", ""))
    missing = [name for name in AZURE_NEEDS.get(auth_type, ()) if name not in options]
    if missing:
        raise InvalidRequest(f"storage option {option_name!r} is {auth_type}, which also needs {' and '.join(missing)}")
    if auth_type and auth_type != "sharedkey" and "account_key" in options:
        raise InvalidRequest(
            f"storage options {option_name!r} and {options['account_key'][0]!r} contradict each other: leave one out"
        )


def _normalize_endpoint(kind: str, location: Location, config: dict[str, Any], client: dict[str, Any]) -> None:
    """Normalize the endpoint for obstore, and allow requests without TLS if it starts with http."""
    # An endpoint of the environment applies if the options have none.
    name = "base_url" if kind == "gcs" else "endpoint"
    endpoint = config.get(name) or next((os.environ[variable] for variable in _ENDPOINTS[kind] if os.environ.get(variable)), "")
    if endpoint and "://" not in endpoint:
        # Hadoop writes only the host; another option selects TLS.
        endpoint = f"{'http' if client.get('allow_http') else 'https'}://{endpoint}"
        config[name] = endpoint
    if BUCKET_IN_HOST in config:
        in_host = config.pop(BUCKET_IN_HOST)
        config.setdefault("virtual_hosted_style_request", "true" if in_host else "false")
        scheme, _, host = endpoint.partition("://")
        if in_host and host and not host.startswith(f"{location.authority}."):
            config[name] = f"{scheme}://{location.authority}.{host}"
    if kind == "s3" and os.environ.get(_ENDPOINTS["s3"][0]):
        config[S3_ENDPOINT] = config.setdefault(name, endpoint)
    if endpoint.startswith("http://") or config.get("use_emulator"):
        client.setdefault("allow_http", True)


def store_target(kind: str, location: Location, config: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The bucket or container, and the settings including the account of an Azure URI."""
    if kind != "azure" or "@" not in location.authority:
        return location.authority, config
    container, _, host = location.authority.partition("@")
    named = azure_endpoint(host)
    account = named["account_name"]
    if config.get("account_name", account) != account:
        raise InvalidRequest(
            f"{location.uri} contains the account {account!r}, but the options contain {config['account_name']!r}"
        )
    return container, {**named, **config}


def _count(name: str, value: str) -> int:
    if not value.isdecimal():
        raise InvalidRequest(f"storage option {name}={redact_secret(name, value)!r}: write a number")
    return int(value)

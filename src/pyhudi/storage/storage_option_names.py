"""Storage option names of other tools (PyIceberg, fsspec, Hadoop, delta-rs) and the obstore settings that they map to.

A name maps to one or several settings, depending on its value. A name without an exact equivalent is refused with
advice, because an ignored option might go unnoticed until the data is in the wrong place.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.properties import redact_secret
from pyhudi.options import lock_options

# Whether the host name contains the bucket (virtual-hosted style) although the endpoint lacks it, as in PyIceberg and
# Hadoop.
BUCKET_IN_HOST = "bucket_in_host"
# Hadoop's authentication type for Azure; it must agree with the credentials in the options.
AZURE_AUTH = "azure_auth"

_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}

# A setting of obstore, or a function of the name and the value.
OptionTarget = str | Callable[[str, str], Mapping[str, str]]


def parse_boolean(name: str, value: str) -> bool:
    """Parse a boolean option.  Raises InvalidRequest for other values."""
    boolean = _BOOLEANS.get(value.lower())
    if boolean is None:
        raise InvalidRequest(f"storage option {name}={redact_secret(name, value)!r}: write true or false")
    return boolean


def azure_endpoint(host: str) -> Mapping[str, str]:
    """Settings of an Azure host (acc.dfs.core.windows.net): the account, and the endpoint if it is not the default."""
    account, separator, rest = host.partition(".")
    rest = rest.removeprefix("dfs.").removeprefix("blob.")
    is_default = not separator or rest == "core.windows.net"
    return {"account_name": account} if is_default else {"account_name": account, "endpoint": f"https://{account}.blob.{rest}"}


def _opposite(setting: str) -> OptionTarget:
    return lambda name, value: {setting: "false" if parse_boolean(name, value) else "true"}


def _fsspec_client(name: str, value: str) -> Mapping[str, str]:
    """Arguments of boto3's client, as JSON or a dict."""
    known: dict[str, OptionTarget] = {
        "endpoint_url": "endpoint",
        "region_name": "region",
        "aws_access_key_id": "access_key_id",
        "aws_secret_access_key": "secret_access_key",
        "aws_session_token": "session_token",
        "use_ssl": _opposite("allow_http"),
        "verify": _opposite("allow_invalid_certificates"),
    }
    try:
        arguments = json.loads(value)
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        raise InvalidRequest(f"storage option {name}: the value must be a dict or its JSON text")
    settings: dict[str, str] = {}
    for argument, argument_value in arguments.items():
        if argument not in known:
            raise InvalidRequest(f"storage option {name}: {argument!r} is unknown. Supported: {', '.join(known)}")
        if argument_value is not None:
            settings.update(_applied(known[argument], f"{name}.{argument}", str(argument_value)))
    return settings


def _s3a_provider(name: str, value: str) -> Mapping[str, str]:
    providers = [provider.strip().rpartition(".")[2] for provider in value.split(",") if provider.strip()]
    if providers == ["AnonymousAWSCredentialsProvider"]:
        return {"skip_signature": "true"}
    if providers and set(providers) <= {"SimpleAWSCredentialsProvider", "TemporaryAWSCredentialsProvider"}:
        return {"skip_signature": "false"}
    raise Unsupported(
        f"{name}={value}: only the Simple, Temporary and Anonymous providers are supported, Anonymous only by itself; "
        "leave it out to use credentials of the environment or the machine's role"
    )


def _gcs_token(name: str, value: str) -> Mapping[str, str]:
    """A gcsfs token: a keyword, the path of a key file, its content, or an access token."""
    if value == "anon":
        return {"skip_signature": "true"}
    if value in ("google_default", "cloud"):
        raise InvalidRequest(f"storage option {name}={value!r} is the default: leave it out")
    if value in ("cache", "browser"):
        raise Unsupported(
            f"storage option {name}={value!r}: interactive login is not supported; set "
            "application_credentials, the path of a key file"
        )
    if value.lstrip().startswith("{"):
        return {"service_account_key": value}
    return {"application_credentials" if value.endswith(".json") or value.startswith("/") else "bearer_token": value}


def _service_account(name: str, value: str) -> Mapping[str, str]:
    # A key passed as a path would appear in the error message about a missing file.
    return {"service_account_key" if value.lstrip().startswith("{") else "service_account": value}


def _gs_auth_type(name: str, value: str) -> Mapping[str, str]:
    if value.upper() == "UNAUTHENTICATED":
        return {"skip_signature": "true"}
    raise InvalidRequest(
        f"storage option {name}={value!r}: leave it out; set fs.gs.auth.service.account.json.keyfile, or nothing for "
        "application default credentials and the machine's role"
    )


def _connection_string(name: str, value: str) -> Mapping[str, str]:
    parts = {
        key.strip().lower(): rest.strip() for key, _, rest in (part.partition("=") for part in value.split(";") if part.strip())
    }
    if {key: rest.lower() for key, rest in parts.items()} == {"usedevelopmentstorage": "true"}:
        return {"use_emulator": "true"}
    protocol, suffix = parts.pop("defaultendpointsprotocol", "https"), parts.pop("endpointsuffix", "core.windows.net")
    # Endpoints of other Azure services are irrelevant.
    for other in ("queueendpoint", "tableendpoint", "fileendpoint", "dfsendpoint"):
        parts.pop(other, None)
    known = {
        "accountname": "account_name",
        "accountkey": "account_key",
        "sharedaccesssignature": "sas_key",
        "blobendpoint": "endpoint",
    }
    if not set(parts) <= set(known):
        # Unknown parts are not repeated in the message: they may contain a key.
        raise InvalidRequest(
            f"storage option {name}: write UseDevelopmentStorage=true alone, or AccountName=...;AccountKey=..., with "
            "SharedAccessSignature, BlobEndpoint, DefaultEndpointsProtocol, EndpointSuffix; other parts are not supported"
        )
    settings = {known[key]: rest for key, rest in parts.items()}
    if "endpoint" in settings:
        account, separator, _ = (urlsplit(settings["endpoint"]).hostname or "").partition(".blob.")
        return {"account_name": account, **settings} if separator else settings
    if "account_name" in settings and (protocol, suffix) != ("https", "core.windows.net"):
        settings["endpoint"] = f"{protocol}://{settings['account_name']}.blob.{suffix}"
    return settings


def _azure_host(name: str, value: str) -> Mapping[str, str]:
    return {"endpoint": f"https://{value}", "account_name": value.partition(".")[0]}


def _azure_provider(name: str, value: str) -> Mapping[str, str]:
    provider = value.strip().rpartition(".")[2]
    if provider in ("ClientCredsTokenProvider", "WorkloadIdentityTokenProvider"):
        return {AZURE_AUTH: "oauth"}
    raise Unsupported(
        f"{name}={value}: only ClientCredsTokenProvider and WorkloadIdentityTokenProvider are supported; leave it out to use "
        "the machine's identity"
    )


def _azure_auth_type(name: str, value: str) -> Mapping[str, str]:
    if value.lower() not in AZURE_NEEDS:
        raise Unsupported(f"{name}={value!r}: only SharedKey, OAuth and SAS are supported")
    return {AZURE_AUTH: value.lower()}


def _azure_token_url(name: str, value: str) -> Mapping[str, str]:
    """https://login.microsoftonline.com/TENANT/oauth2/token"""
    matched = re.match(r"(https?://([^/]+))/+([^/]+)", value)
    if matched is None:
        raise InvalidRequest(f"storage option {name}: write https://login.microsoftonline.com/TENANT/oauth2/token")
    authority, host, tenant = matched.groups()
    return {"tenant_id": tenant} if host == "login.microsoftonline.com" else {"tenant_id": tenant, "authority_host": authority}


# Values of Hadoop's fs.azure.account.auth.type -> the settings that each requires.
AZURE_NEEDS: dict[str, tuple[str, ...]] = {
    "sharedkey": ("account_key",),
    "sas": ("sas_key",),
    "oauth": ("client_id", "tenant_id"),
}

_ANONYMOUS: dict[str, OptionTarget] = {"anonymous": "skip_signature", "anon": "skip_signature"}

OPTION_TARGETS: dict[str, dict[str, OptionTarget]] = {
    "s3": {
        **_ANONYMOUS,
        "endpoint_url": "endpoint",
        "endpoint_url_s3": "endpoint",
        "token": "session_token",
        # s3fs
        "key": "access_key_id",
        "username": "access_key_id",
        "secret": "secret_access_key",
        "password": "secret_access_key",
        "client_kwargs": _fsspec_client,
        "use_ssl": _opposite("allow_http"),
        "requester_pays": "request_payer",
        # PyIceberg
        "s3.endpoint": "endpoint",
        "s3.access-key-id": "access_key_id",
        "s3.secret-access-key": "secret_access_key",
        "s3.session-token": "session_token",
        "s3.region": "region",
        "s3.anonymous": "skip_signature",
        "s3.proxy-uri": "proxy_url",
        "s3.force-virtual-addressing": BUCKET_IN_HOST,
        "s3.path-style-access": _opposite(BUCKET_IN_HOST),
        "client.access-key-id": "access_key_id",
        "client.secret-access-key": "secret_access_key",
        "client.session-token": "session_token",
        "client.region": "region",
        # Hadoop
        "fs.s3a.access.key": "access_key_id",
        "fs.s3a.secret.key": "secret_access_key",
        "fs.s3a.session.token": "session_token",
        "fs.s3a.endpoint": "endpoint",
        "fs.s3a.endpoint.region": "region",
        "fs.s3a.connection.ssl.enabled": _opposite("allow_http"),
        "fs.s3a.path.style.access": _opposite(BUCKET_IN_HOST),
        "fs.s3a.requester.pays.enabled": "request_payer",
        "fs.s3a.aws.credentials.provider": _s3a_provider,
    },
    "gcs": {
        **_ANONYMOUS,
        "endpoint": "base_url",
        "endpoint_url": "base_url",
        "token": _gcs_token,
        "service_account": _service_account,
        "service_account_path": _service_account,
        # PyIceberg
        "gcs.oauth2.token": "bearer_token",
        "gcs.service.host": "base_url",
        # Hadoop
        "fs.gs.auth.service.account.json.keyfile": "service_account",
        "google.cloud.auth.service.account.json.keyfile": "service_account",
        "fs.gs.storage.root.url": "base_url",
        "fs.gs.auth.type": _gs_auth_type,
        "fs.gs.auth.null.enable": "skip_signature",
    },
    "azure": {
        **_ANONYMOUS,
        "access_key": "account_key",
        "master_key": "account_key",
        "sas_token": "sas_key",
        "bearer_token": "token",
        "endpoint_url": "endpoint",
        # adlfs
        "connection_string": _connection_string,
        "account_host": _azure_host,
        # PyIceberg
        "adls.connection-string": _connection_string,
        "adls.account-name": "account_name",
        "adls.account-key": "account_key",
        "adls.sas-token": "sas_key",
        "adls.tenant-id": "tenant_id",
        "adls.client-id": "client_id",
        "adls.client-secret": "client_secret",
        "adls.account-host": _azure_host,
        "adls.token": "token",
        "adls.anon": "skip_signature",
        # Hadoop
        "fs.azure.account.key": "account_key",
        "fs.azure.account.auth.type": _azure_auth_type,
        "fs.azure.account.oauth.provider.type": _azure_provider,
        "fs.azure.account.oauth2.client.id": "client_id",
        "fs.azure.account.oauth2.client.secret": "client_secret",
        "fs.azure.account.oauth2.client.endpoint": _azure_token_url,
        "fs.azure.account.oauth2.token.file": "federated_token_file",
        "fs.azure.sas.fixed.token": "sas_key",
    },
}

# Names with the account or its host as a suffix: fs.azure.account.key.acc.dfs.core.windows.net.
BY_ACCOUNT = (
    *(name for name in OPTION_TARGETS["azure"] if name.startswith("fs.azure.")),
    "adls.sas-token",
    "adls.connection-string",
)

_NO_PROFILE = "profile files are not read: set access_key_id and secret_access_key, or export them to the environment"
_NO_ROLE = "roles are not assumed: pass the temporary credentials of STS, including session_token"
_LOCKS = f"writers lock a table by {lock_options.PROVIDER} (options=), see docs/lock-providers.md"
_URI_NAMES = "the URI of the table contains it: leave it out"
_CLIENT_TIMES = "set timeout or connect_timeout, such as 30s"
_CREDENTIAL = "set the option of its type: account_key, sas_token or bearer_token"
_BUCKETS = "buckets are neither created nor listed: leave it out"

# Names without an exact equivalent -> what to do instead.
REFUSED: dict[str, dict[str, str]] = {
    "s3": {
        "bucket": _URI_NAMES,
        "bucket_name": _URI_NAMES,
        "profile": _NO_PROFILE,
        "s3.profile-name": _NO_PROFILE,
        "client.profile-name": _NO_PROFILE,
        "s3.role-arn": _NO_ROLE,
        "client.role-arn": _NO_ROLE,
        "fs.s3a.assumed.role.arn": _NO_ROLE,
        "s3.connect-timeout": _CLIENT_TIMES,
        "s3.request-timeout": _CLIENT_TIMES,
        "fs.s3a.connection.timeout": _CLIENT_TIMES,
        "fs.s3a.attempts.maximum": "give max_retries",
        "fs.s3a.proxy.host": "give proxy_url",
        "fs.s3a.encryption.algorithm": "give server_side_encryption (AES256, aws:kms) and sse_kms_key_id",
        "fs.s3a.server-side-encryption-algorithm": "give server_side_encryption (AES256, aws:kms) and sse_kms_key_id",
        "config_kwargs": "give timeout, max_retries, proxy_url or virtual_hosted_style_request",
        "s3_additional_kwargs": "give server_side_encryption and sse_kms_key_id",
        "s3_allow_unsafe_rename": _LOCKS,
        "s3_locking_provider": _LOCKS,
        "delta_dynamo_table_name": _LOCKS,
        "copy_if_not_exists": "no object is copied here: leave it out",
    },
    "gcs": {
        "bucket": _URI_NAMES,
        "bucket_name": _URI_NAMES,
        "project": _BUCKETS,
        "project_id": _BUCKETS,
        "gcs.project-id": _BUCKETS,
        "fs.gs.project.id": _BUCKETS,
        "default_location": _BUCKETS,
        "gcs.default-bucket-location": _BUCKETS,
        "gcs.oauth2.token-expires-at": "a token is used as it is: leave it out",
        "access": "what the credentials permit is permitted: leave it out",
        "gcs.access": "what the credentials permit is permitted: leave it out",
    },
    "azure": {
        "container": _URI_NAMES,
        "container_name": _URI_NAMES,
        "credential": _CREDENTIAL,
        "adls.credential": _CREDENTIAL,
        "adls.blob-storage-authority": "give endpoint",
        "adls.dfs-storage-authority": "give endpoint",
        "adls.blob-storage-scheme": "give endpoint",
        "adls.dfs-storage-scheme": "give endpoint",
    },
}

# The most common names of obstore.
_OWN = {
    "s3": ("access_key_id", "secret_access_key", "session_token", "region", "endpoint", "allow_http", "anonymous"),
    "gcs": ("service_account", "service_account_key", "application_credentials", "token", "base_url", "anonymous"),
    "azure": ("account_name", "account_key", "sas_token", "client_id", "client_secret", "tenant_id", "endpoint", "use_emulator"),
}

# Name prefixes that belong to one store.
FAMILIES: dict[str, tuple[str, ...]] = {
    "s3": ("s3.", "client.", "fs.s3a.", "aws_"),
    "gcs": ("gcs.", "fs.gs.", "google.cloud.", "google_"),
    "azure": ("adls.", "fs.azure.", "azure_storage_", "azure_"),
}
STORES = {"s3": "S3", "gcs": "Google Cloud Storage", "azure": "Azure"}

# Which credentials to set.
CREDENTIALS = {
    "s3": "set access_key_id and secret_access_key (session_token with temporary ones) or anonymous=true in storage_options, or "
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (AWS_SESSION_TOKEN) in the environment",
    "gcs": "set service_account (the path of a key file) or token in storage_options (anonymous=true only reads), or "
    "GOOGLE_APPLICATION_CREDENTIALS in the environment",
    "azure": "set account_name, and account_key, sas_token, client_id with client_secret and tenant_id, or anonymous=true in "
    "storage_options, or AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY in the environment",
}


def resolve_option(kind: str, where: str, name: str, option_value: str, value: str) -> Mapping[str, str] | None:
    """Map an option to settings of obstore; None for a name that is not listed here.

    Args:
        kind: A key of `OPTION_TARGETS`.
        where: The table, for messages.
        name: In lower case and without `spark.hadoop.`.
        option_value: The name as the user wrote it.
        value: Value of the option.

    Raises:
        InvalidRequest: The option has no exact equivalent; the message contains advice.
    """
    if kind == "azure":
        for prefix in BY_ACCOUNT:
            if name.startswith(f"{prefix}."):
                settings = _applied(OPTION_TARGETS["azure"][prefix], option_value, value)
                return {**azure_endpoint(name[len(prefix) + 1 :]), **settings}
    if name in REFUSED[kind]:
        raise InvalidRequest(f"{where}: storage option {option_value!r} is not supported: {REFUSED[kind][name]}")
    return _applied(OPTION_TARGETS[kind][name], option_value, value) if name in OPTION_TARGETS[kind] else None


def check_family(kind: str, where: str, name: str, option_value: str) -> None:
    """Refuse options of another store, and unknown options of a supported tool."""
    for other, prefixes in FAMILIES.items():
        if not name.startswith(prefixes):
            continue
        if other != kind:
            raise InvalidRequest(
                f"{where}: storage option {option_value!r} is for {STORES[other]}, but the table is in "
                f"{STORES[kind]}: leave it out"
            )
        family = next(prefix for prefix in prefixes if name.startswith(prefix))
        if family.endswith("."):
            known = ", ".join(sorted(option for option in OPTION_TARGETS[kind] if option.startswith(family)))
            raise InvalidRequest(f"{where}: storage option {option_value!r} is unknown. Supported: {known}")


def like(kind: str, name: str) -> str:
    """End of a message about an unknown option: the most similar known option, or the common ones."""
    near = difflib.get_close_matches(name.lower(), (*_OWN[kind], *OPTION_TARGETS[kind]), 1)
    return f"; did you mean {near[0]}?" if near else f"; the usual ones are {', '.join(_OWN[kind])}"


def _applied(target: OptionTarget, name: str, value: str) -> Mapping[str, str]:
    return {target: value} if isinstance(target, str) else target(name, value)

"""What the client of object stores reports, as errors of ours: what failed, where, and what to do."""

from __future__ import annotations

from obstore.exceptions import (
    InvalidPathError,
    NotFoundError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from pyhudi.errors import HudiError, InvalidRequest, StorageUnavailable, TableState, Unsupported
from pyhudi.storage.object_store.object_options import STORE_TYPES
from pyhudi.storage.storage_option_names import CREDENTIALS
from pyhudi.storage.uris import without_secrets

# Where machines in all three clouds ask for the credentials of their role.
_METADATA_SERVICE = "://169.254.169.254/"


def first_line(error: BaseException) -> str:
    """What the error says, without the debug form of the same error that follows, twenty lines long, and without secrets."""
    return without_secrets(str(error).partition("\n")[0].strip())


def http_status(error: BaseException) -> int | None:
    """The HTTP status that the store answered with, as far as the message tells."""
    _, found, rest = str(error).partition("status code: ")
    return int(rest[:3]) if found and rest[:3].isdecimal() else None


def is_missing_bucket(error: BaseException) -> bool:
    """Whether the store says that it has no such bucket or container."""
    return any(code in str(error) for code in ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist"))


def store_error(error: BaseException, verb: str, uri: str) -> HudiError:
    """Our error for what the client raised when it should `verb` ("read", "write", "delete", "list") what lies at `uri`."""
    line = first_line(error)
    if is_missing_bucket(error):
        return InvalidRequest(f"cannot {verb} {uri}: its bucket does not exist")
    if isinstance(error, FileNotFoundError | NotFoundError):
        return TableState(f"{uri}: no such file")
    if _METADATA_SERVICE in line:
        return StorageUnavailable(
            f"cannot {verb} {uri}: neither storage_options nor the environment give credentials, and no role of the machine "
            f"does; {_credentials(uri)}: {line}"
        )
    if isinstance(error, PermissionError | PermissionDeniedError | UnauthenticatedError) or http_status(error) in (401, 403):
        return InvalidRequest(f"cannot {verb} {uri}: the store refuses these credentials; {_credentials(uri)}: {line}")
    if isinstance(error, NotSupportedError | NotImplementedError):
        return Unsupported(f"cannot {verb} {uri}: the store has no such operation: {line}")
    if isinstance(error, InvalidPathError | ValueError):
        return InvalidRequest(f"cannot {verb} {uri}: {line}")
    if "builder error" in line:
        return InvalidRequest(f"cannot {verb} {uri}: set allow_http=true to reach an endpoint without TLS: {line}")
    return StorageUnavailable(f"cannot {verb} {uri}: {line}")


def _credentials(where: str) -> str:
    """What to set, by the scheme of the first URI in `where`; an object that is named by its key alone tells none."""
    scheme = where.partition("://")[0].rpartition(" ")[2]
    return CREDENTIALS[STORE_TYPES[scheme]] if scheme in STORE_TYPES else "check storage_options"

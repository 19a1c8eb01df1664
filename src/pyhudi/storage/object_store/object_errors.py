"""Translation of object store errors."""

from __future__ import annotations

from obstore.exceptions import InvalidPathError, NotFoundError, NotSupportedError, PermissionDeniedError, UnauthenticatedError

from pyhudi.errors import HudiError, InvalidRequest, StorageUnavailable, TableState, Unsupported
from pyhudi.storage.object_store.object_options import STORE_TYPES
from pyhudi.storage.storage_option_names import CREDENTIALS
from pyhudi.storage.uris import without_secrets

# Address of the metadata service for role credentials in all three clouds.
_METADATA_SERVICE = "://169.254.169.254/"


def first_line(error: BaseException) -> str:
    """The first line of an error message, without its multi-line debug form and without secrets."""
    return without_secrets(str(error).partition("\n")[0].strip())


def http_status(error: BaseException) -> int | None:
    """The HTTP status of a response, if the error message contains it."""
    _, separator, status_text = str(error).partition("status code: ")
    return int(status_text[:3]) if separator and status_text[:3].isdecimal() else None


_BUSY = frozenset({408, 409, 425, 429})

# Parts of the client's messages about requests without a complete answer.
_NO_ANSWER = ("HTTP error", "Error performing", "Got invalid", "Error getting")


def is_transient(error: BaseException) -> bool:
    """Return True if a repetition may mend a failure: no complete answer, or the answer of a busy store."""
    status = http_status(error)
    if status is not None:
        return status >= 500 or status in _BUSY
    if _METADATA_SERVICE in str(error):
        # A machine without a role has no such service.
        return False
    return isinstance(error, OSError) or any(text in str(error) for text in _NO_ANSWER)


def is_lost_answer(failure: HudiError) -> bool:
    """Return True if a call failed because no complete answer came until its deadline."""
    return isinstance(failure, StorageUnavailable) and (failure.__cause__ is None or is_transient(failure.__cause__))


def is_missing_bucket(error: BaseException) -> bool:
    """Return True if the error means that the bucket or container does not exist."""
    return any(code in str(error) for code in ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist"))


def store_error(error: BaseException, operation: str, uri: str) -> HudiError:
    """Translate an exception of the client.

    Args:
        error: Exception of the client.
        operation: "read", "write", "delete", "list".
        uri: URI of the object or prefix.

    Returns:
        PyHudi's error for it.
    """
    line = first_line(error)
    if is_missing_bucket(error):
        return InvalidRequest(f"cannot {operation} {uri}: its bucket does not exist")
    if isinstance(error, FileNotFoundError | NotFoundError):
        return TableState(f"{uri}: no such file")
    if _METADATA_SERVICE in line:
        return StorageUnavailable(
            f"cannot {operation} {uri}: no credentials in storage_options, the environment or a role of the machine; "
            f"{_credentials(uri)}: {line}"
        )
    if isinstance(error, PermissionError | PermissionDeniedError | UnauthenticatedError) or http_status(error) in (401, 403):
        return InvalidRequest(f"cannot {operation} {uri}: the store rejects these credentials; {_credentials(uri)}: {line}")
    if isinstance(error, NotSupportedError | NotImplementedError):
        return Unsupported(f"cannot {operation} {uri}: the store does not support the operation: {line}")
    if isinstance(error, InvalidPathError | ValueError):
        return InvalidRequest(f"cannot {operation} {uri}: {line}")
    if "builder error" in line:
        return InvalidRequest(f"cannot {operation} {uri}: set allow_http=true to reach an endpoint without TLS: {line}")
    return StorageUnavailable(f"cannot {operation} {uri}: {line}")


def _credentials(where: str) -> str:
    """Which credentials to set, by the scheme of the first URI in `where`."""
    scheme = where.partition("://")[0].rpartition(" ")[2]
    return CREDENTIALS[STORE_TYPES[scheme]] if scheme in STORE_TYPES else "check storage_options"

"""What HDFS reports, as errors of ours: what failed, where, and what to do."""

from __future__ import annotations

from pyhudi.errors import HudiError, InvalidRequest, StorageFull, StorageUnavailable, TableState, Unsupported
from pyhudi.storage.hdfs.webhdfs_http import NoAnswer, RemoteError

_REFUSED_BY = frozenset({"AccessControlException", "SecurityException", "AuthorizationException"})
_FULL = frozenset(
    {"DSQuotaExceededException", "NSQuotaExceededException", "QuotaExceededException", "QuotaByStorageTypeExceededException"}
)
_WRONG_NAME = frozenset({"InvalidPathException", "IllegalArgumentException", "PathComponentTooLongException"})


def hdfs_error(error: NoAnswer | RemoteError, verb: str, uri: str) -> HudiError:
    """Our error for what the client raised when it should `verb` ("read", "write", "delete", "list") what lies at `uri`."""
    if isinstance(error, NoAnswer):
        return StorageUnavailable(
            f"cannot {verb} {uri}: no answer from HDFS ({error}); "
            "the storage option http_address names the NameNode's HTTP server"
        )
    if error.status == 401:
        return Unsupported(
            f"cannot {verb} {uri}: the NameNode asks who this is by Kerberos or a token, which is not built; "
            "a cluster whose hadoop.security.authentication is simple, or an HttpFS of that kind, is reached"
        )
    if error.kind in _REFUSED_BY:
        return InvalidRequest(f"cannot {verb} {uri}: HDFS forbids it to this user (storage option user): {error}")
    if error.kind in _FULL:
        return StorageFull(f"cannot {verb} {uri}: {error}: free some space or raise the quota")
    if error.kind in _WRONG_NAME:
        return InvalidRequest(f"cannot {verb} {uri}: HDFS does not take the name: {error}")
    if error.kind in ("FileAlreadyExistsException", "PathIsNotEmptyDirectoryException", "ParentNotDirectoryException"):
        return InvalidRequest(f"cannot {verb} {uri}: the path, or a part of it, is of another kind: {error}")
    if error.kind == "FileNotFoundException":
        return TableState(f"{uri}: no such file")
    return StorageUnavailable(f"cannot {verb} {uri}: {error.kind or 'HDFS'}: {error}")

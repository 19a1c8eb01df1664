"""WebHDFS client: the REST interface of NameNodes and DataNodes, one method per operation that the storage needs.

A request goes to the NameNode, which answers it, or redirects to the DataNode that has the bytes (307); HttpFS returns
them itself. Of several NameNodes one is active: the others answer StandbyException, and the next one is tried.

Repeated until the deadline of the call (`storage.deadlines`): requests that were certainly not executed (connection
refused, standby, safe mode while the NameNode starts), and idempotent ones. A rename whose response is lost raises
`NoResponse`, and the caller checks the outcome.

Source: WebHDFS REST API of Hadoop.

No TLS, Kerberos or delegation tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from pyhudi.storage.deadlines import CallLimits, Deadline
from pyhudi.storage.hdfs.webhdfs_http import Connections, HttpResponse, NoResponse, NotSent, RemoteError, Upload, remote_error

_PREFIX = "/webhdfs/v1"
_MIB = 1024 * 1024

# Responses of a gateway before the NameNode, which may have executed the request or not.
_BUSY = frozenset({429, 502, 503, 504})

# Exceptions of a NameNode that executed nothing; the same or another NameNode may succeed shortly.
_LATER = frozenset({"StandbyException", "RetriableException", "SafeModeException", "ObserverRetryOnActiveException"})


@dataclass(frozen=True, slots=True)
class FileStatus:
    """A file or folder.

    Attributes:
        name: Name within the folder; '' for the requested path itself.
        is_file: False for folders.
        size_bytes: Size in bytes.
        modified_ms: Modification time in epoch milliseconds.
        file_id: Id of the inode, which a rename preserves.
    """

    name: str
    is_file: bool
    size_bytes: int
    modified_ms: int
    file_id: int


class HdfsClient:
    """The namespace behind one or several NameNodes.

    addresses: `host:port` of their HTTP servers.  settings: parameters of created files (`replication`, `blocksize`).
    """

    def __init__(
        self, addresses: tuple[str, ...], user: str, settings: Mapping[str, str], *, limits: CallLimits, connect_timeout_s: float
    ) -> None:
        self._addresses = addresses
        self._user = user
        self._settings = dict(settings)
        self._limits = limits
        self._connections = Connections(connect_timeout_s)
        # Index of the NameNode that answered last; concurrent updates are harmless.
        self._active = 0

    def status(self, path: str) -> FileStatus | None:
        """Status of a path; None if it does not exist."""
        try:
            status = self._request("GET", path, "GETFILESTATUS")["FileStatus"]
        except RemoteError as error:
            if is_absence(error):
                return None
            raise
        return _file_status(status)

    def children(self, path: str) -> list[FileStatus] | None:
        """The children of a folder, in no particular order; None if the folder does not exist or is a file."""
        try:
            statuses = self._request("GET", path, "LISTSTATUS")["FileStatuses"]["FileStatus"]
        except RemoteError as error:
            if is_absence(error):
                return None
            raise
        children = [_file_status(status) for status in statuses]
        # For a file the response is the file itself.
        return None if any(not child.name for child in children) else children

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """The bytes from `offset`: exactly `length` if given, which the file must have.

        Raises RemoteError if the file does not exist or ends before `offset`.
        """
        range_ = {"offset": str(offset)} | ({} if length is None else {"length": str(length)})
        deadline = Deadline(self._limits, length or 0)
        while True:
            try:
                return self._open(path, range_, length, deadline.request_s())
            except NoResponse:
                # The NameNode may name another DataNode next time.
                if not deadline.pause():
                    raise

    def _open(self, path: str, range_: Mapping[str, str], length: int | None, timeout_s: float) -> bytes:
        answer = self._send("GET", path, "OPEN", range_)
        if answer.location is not None:
            answer = self._connections.exchange(*answer.location, "GET", timeout_s=timeout_s)
            if answer.status != 200:
                raise remote_error(answer)
        if length is not None and len(answer.data) < length:
            raise NoResponse(f"the answer ended after {len(answer.data)} of {length} bytes")
        return answer.data

    def create(self, path: str, data: bytes) -> None:
        """Create a file with a unique name.  It is visible while it is being written."""
        deadline = Deadline(self._limits, len(data), changes=True)
        place = self._place(path)
        answer = self._connections.exchange(*place, "PUT", data, timeout_s=deadline.request_s())
        if answer.status >= 300:
            raise remote_error(answer)

    def begin(self, path: str) -> Upload:
        """Create a file with a unique name and write it incrementally."""
        address, target = self._place(path)
        return Upload(self._connections.open_new(address, self._limits.of_request(_MIB)), target)

    def rename(self, path: str, target: str, *, replace: bool) -> None:
        """Rename a file, replacing the target or only if it does not exist. Raises NoResponse if the outcome is unknown."""
        options = {"destination": target, "renameoptions": "OVERWRITE" if replace else "NONE"}
        self._request("PUT", path, "RENAME", options, repeat=False)

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Delete a file, or a folder recursively; a missing one is ignored."""
        self._request("DELETE", path, "DELETE", {"recursive": "true" if recursive else "false"})

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents."""
        self._request("PUT", path, "MKDIRS")

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Set the modification time of a file."""
        self._request("PUT", path, "SETTIMES", {"modificationtime": str(modified_ms), "accesstime": "-1"})

    def set_attribute(self, path: str, name: str, value: str) -> None:
        """Create an extended attribute.  Raises RemoteError if it exists, NoResponse if the outcome is unknown."""
        options = {"xattr.name": name, "xattr.value": f"0x{value.encode().hex()}", "flag": "CREATE"}
        self._request("PUT", path, "SETXATTR", options, repeat=False)

    def attribute(self, path: str, name: str) -> str | None:
        """An extended attribute; None if the file lacks it."""
        try:
            attributes = self._request("GET", path, "GETXATTRS", {"encoding": "hex"})["XAttrs"]
        except RemoteError as error:
            if is_absence(error):
                return None
            raise
        text = next((attribute["value"] for attribute in attributes if attribute["name"] == name), None)
        return None if text is None else bytes.fromhex(text.removeprefix("0x")).decode()

    def _request(
        self, method: str, path: str, operation: str, options: Mapping[str, str] | None = None, *, repeat: bool = True
    ) -> Any:
        answer = self._send(method, path, operation, options or {}, repeat=repeat)
        if not answer.data:
            return {}
        try:
            return json.loads(answer.data)
        except ValueError:
            raise RemoteError(
                answer.status,
                "the response is not JSON. Check that the address is the HTTP server of a NameNode",
                "the answer is no JSON; is this the HTTP address of a NameNode?",
            ) from None

    def _place(self, path: str) -> tuple[str, str]:
        """Address and target of the DataNode for the bytes of a new file."""
        answer = self._send("PUT", path, "CREATE", {"overwrite": "false", **self._settings})
        if answer.location is None:
            raise RemoteError(
                answer.status, "the NameNode did not assign a DataNode to write to", "no DataNode was named to write to"
            )
        return answer.location

    def _send(self, method: str, path: str, operation: str, options: Mapping[str, str], *, repeat: bool = True) -> HttpResponse:
        query = urlencode({"op": operation, "user.name": self._user, **options}, quote_via=quote)
        target = f"{_PREFIX}{quote(path)}?{query}"
        deadline = Deadline(self._limits, changes=method != "GET")
        first, count = self._active, len(self._addresses)
        number = 0
        while True:
            at = (first + number) % count
            try:
                answer = self._connections.exchange(self._addresses[at], target, method, timeout_s=deadline.request_s())
                if answer.status < 400:
                    self._active = at
                    return answer
                refusal = remote_error(answer)
                may_repeat = refusal.kind in _LATER or (repeat and not refusal.kind and answer.status in _BUSY)
                failure: NoResponse | RemoteError = refusal
            except NoResponse as error:
                failure, may_repeat = error, repeat or isinstance(error, NotSent)
            number += 1
            if not may_repeat or (number % count == 0 and not deadline.pause()):
                raise failure


def is_absence(error: RemoteError) -> bool:
    """Return True if the error means that the path does not exist, or that a part of it is a file."""
    if error.kind == "FileNotFoundException":
        return True
    return error.kind == "ParentNotDirectoryException" or "(is not a directory)" in str(error)


def _file_status(entry: Mapping[str, Any]) -> FileStatus:
    return FileStatus(
        entry["pathSuffix"], entry["type"] == "FILE", entry["length"], entry["modificationTime"], entry.get("fileId", 0)
    )

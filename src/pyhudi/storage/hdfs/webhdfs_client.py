"""WebHDFS: the NameNode's and DataNodes' REST interface, one method for each operation that a storage needs.

A request goes to the NameNode, which answers it, or names the DataNode that has the bytes (307); HttpFS gives them itself.  Of
several NameNodes one is active: the others answer StandbyException, and the next one is asked.

What is sent again: a request that was certainly not carried out (refused connection, standby, safe mode while the NameNode
starts), and one whose repetition changes nothing.  A rename whose answer is lost is `NoResponse`: the caller looks what happened.

Source: WebHDFS REST API of Hadoop.

What this does not do: TLS, Kerberos, delegation tokens.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from pyhudi.storage.hdfs.webhdfs_http import Connections, HttpResponse, NoResponse, NotSent, RemoteError, Upload, remote_error

_PREFIX = "/webhdfs/v1"
_ROUNDS = 5
_FIRST_PAUSE_S = 0.1

# What a NameNode says that did nothing, and that it or another one may do in a moment.
_LATER = frozenset({"StandbyException", "RetriableException", "SafeModeException", "ObserverRetryOnActiveException"})


@dataclass(frozen=True, slots=True)
class FileStatus:
    """A file or folder.  name: '' for the path that was asked for; file_id: of the inode, which a renamed file keeps."""

    name: str
    is_file: bool
    size_bytes: int
    modified_ms: int
    file_id: int


class HdfsClient:
    """The namespace behind one or several NameNodes.

    addresses: `host:port` of their HTTP servers; settings: what new files get (`replication`, `blocksize`).
    """

    def __init__(
        self, addresses: tuple[str, ...], user: str, settings: Mapping[str, str], *, timeout_s: float, connect_timeout_s: float
    ) -> None:
        self._addresses = addresses
        self._user = user
        self._settings = dict(settings)
        self._connections = Connections(timeout_s, connect_timeout_s)
        # The one that answered last; several threads may find out at once.
        self._active = 0

    def status(self, path: str) -> FileStatus | None:
        """None when there is nothing of that path."""
        try:
            found = self._ask("GET", path, "GETFILESTATUS")["FileStatus"]
        except RemoteError as error:
            if is_absence(error):
                return None
            raise
        return _file_status(found)

    def children(self, path: str) -> list[FileStatus] | None:
        """What a folder holds, in no promised order; None when there is no such folder (a file is none)."""
        try:
            found = self._ask("GET", path, "LISTSTATUS")["FileStatuses"]["FileStatus"]
        except RemoteError as error:
            if is_absence(error):
                return None
            raise
        children = [_file_status(one) for one in found]
        # Of a file the answer is the file itself.
        return None if any(not child.name for child in children) else children

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """The bytes from `offset`.  Raises RemoteError where the file is not there, or ends before `offset`."""
        range_ = {"offset": str(offset)} | ({} if length is None else {"length": str(length)})
        for attempt in range(_ROUNDS):
            answer = self._send("GET", path, "OPEN", range_)
            if answer.location is None:
                return answer.data
            try:
                found = self._connections.exchange(*answer.location, "GET")
            except NoResponse:
                if attempt + 1 == _ROUNDS:
                    raise
                # The NameNode may name another DataNode next time.
                time.sleep(_FIRST_PAUSE_S * 2**attempt)
                continue
            if found.status != 200:
                raise remote_error(found)
            return found.data
        raise AssertionError("the last round returns or raises")

    def create(self, path: str, data: bytes) -> None:
        """Make a file that nobody else knows.  It is seen while it is being written."""
        self._place(path).send(data)

    def begin(self, path: str) -> Upload:
        """Make a file that nobody else knows, and write it bit by bit."""
        return self._place(path).begin()

    def rename(self, path: str, target: str, *, replace: bool) -> None:
        """Move a file, over the one that is there or only where none is.  Raises NoResponse where that is not known."""
        options = {"destination": target, "renameoptions": "OVERWRITE" if replace else "NONE"}
        self._ask("PUT", path, "RENAME", options, repeat=False)

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file, or a folder with what is below it; nothing happens where there is none."""
        self._ask("DELETE", path, "DELETE", {"recursive": "true" if recursive else "false"})

    def make_folder(self, path: str) -> None:
        """With its parents."""
        self._ask("PUT", path, "MKDIRS")

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Give a file another modification time."""
        self._ask("PUT", path, "SETTIMES", {"modificationtime": str(modified_ms), "accesstime": "-1"})

    def set_attribute(self, path: str, name: str, value: str) -> None:
        """Set an extended attribute that the file has not.  Raises RemoteError where it has; NoResponse where that is not
        known.
        """
        options = {"xattr.name": name, "xattr.value": f"0x{value.encode().hex()}", "flag": "CREATE"}
        self._ask("PUT", path, "SETXATTR", options, repeat=False)

    def attribute(self, path: str, name: str) -> str | None:
        """An extended attribute; None where the file has none of that name."""
        try:
            found = self._ask("GET", path, "GETXATTRS", {"encoding": "hex"})["XAttrs"]
        except RemoteError as error:
            if is_absence(error):
                return None
            raise
        text = next((one["value"] for one in found if one["name"] == name), None)
        return None if text is None else bytes.fromhex(text.removeprefix("0x")).decode()

    def _ask(
        self, method: str, path: str, operation: str, options: Mapping[str, str] | None = None, *, repeat: bool = True
    ) -> Any:
        answer = self._send(method, path, operation, options or {}, repeat=repeat)
        if not answer.data:
            return {}
        try:
            return json.loads(answer.data)
        except ValueError:
            raise RemoteError(answer.status, "", "the answer is no JSON; is this the HTTP address of a NameNode?") from None

    def _place(self, path: str) -> _BlockLocation:
        answer = self._send("PUT", path, "CREATE", {"overwrite": "false", **self._settings})
        if answer.location is None:
            raise RemoteError(answer.status, "", "no DataNode was named to write to")
        return _BlockLocation(self._connections, *answer.location)

    def _send(self, method: str, path: str, operation: str, options: Mapping[str, str], *, repeat: bool = True) -> HttpResponse:
        query = urlencode({"op": operation, "user.name": self._user, **options}, quote_via=quote)
        target = f"{_PREFIX}{quote(path)}?{query}"
        pause_s = _FIRST_PAUSE_S
        first, count = self._active, len(self._addresses)
        for number in range(_ROUNDS * count):
            at = (first + number) % count
            is_last = number + 1 == _ROUNDS * count
            try:
                answer = self._connections.exchange(self._addresses[at], target, method)
                if answer.status < 400:
                    self._active = at
                    return answer
                error = remote_error(answer)
                if error.kind not in _LATER or is_last:
                    raise error
            except NoResponse as failure:
                if is_last or not (repeat or isinstance(failure, NotSent)):
                    raise
            if (number + 1) % count == 0:
                time.sleep(pause_s)
                pause_s *= 2
        raise AssertionError("the last round returns or raises")


def is_absence(error: RemoteError) -> bool:
    """Whether it says that there is nothing of that path: no such file, or a part of the path is a file."""
    if error.kind == "FileNotFoundException":
        return True
    return error.kind == "ParentNotDirectoryException" or "(is not a directory)" in str(error)


@dataclass(frozen=True, slots=True)
class _BlockLocation:
    """Where a DataNode takes the bytes of a new file."""

    connections: Connections
    address: str
    target: str

    def send(self, data: bytes) -> None:
        answer = self.connections.exchange(self.address, self.target, "PUT", data)
        if answer.status >= 300:
            raise remote_error(answer)

    def begin(self) -> Upload:
        return Upload(self.connections.open_new(self.address), self.target)


def _file_status(found: Mapping[str, Any]) -> FileStatus:
    return FileStatus(
        found["pathSuffix"], found["type"] == "FILE", found["length"], found["modificationTime"], found.get("fileId", 0)
    )

"""Storage in S3, Google Cloud Storage and Azure over obstore.

    s3://bucket/path  s3a://  s3n://          gs://bucket/path  gcs://
    az://container/path                       abfs[s]://container@account.dfs.core.windows.net/path

Object names are the paths without percent-encoding. An object appears as a whole when its upload is complete, and is
listed at once (all three stores are strongly consistent). How each guarantee is implemented:

1. `put_if_absent` and `put_if_matches` are conditional PUTs (If-None-Match: *, If-Match: etag; a generation in GCS).
   Each call marks its object with a unique id (user metadata `pyhudiput`). A request without a response, or refused by
   a busy store, is retried. If the retry fails its condition, the mark distinguishes the call's own object from another
   writer's. Endpoints that ignore the condition would lose commits: before the first conditional PUT of a process a
   probe detects them, and the store is Unsupported.
2. `open_output` is a multipart upload of 8 MiB parts, at most four concurrently. A failed `with` block leaves the parts
   as an unfinished upload, which is invisible but stored until a lifecycle rule of the bucket expires it.
3. `open_input` fetches the last 64 KiB when it opens, because Parquet and HFile readers begin there. Later reads use
   read-ahead for small ranges and several concurrent requests for large ones.

Options: `object_options`.

Tested against an S3 server, and manually against Azurite.  For GCS only the construction is tested.

Limits: `delete_folder` keeps the empty `folder/` objects that some Hadoop versions write, profile files of the AWS
command line are not read, and stores without conditional PUTs cannot hold a table.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cache
from typing import Any

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError, PreconditionError, UnknownConfigurationKeyError
from obstore.store import AzureStore, GCSStore, S3Store

from pyhudi.errors import InvalidRequest, StorageUnavailable, TableState, Unsupported
from pyhudi.format.paths import join_path
from pyhudi.format.properties import REDACTED, redact_secret
from pyhudi.storage.base import FileInfo, Listing, Storage, StorageSpec, check_file_path, check_path, check_range
from pyhudi.storage.deadlines import NotRepeatable, repeated
from pyhudi.storage.object_store.object_errors import (
    first_line,
    http_status,
    is_lost_answer,
    is_missing_bucket,
    is_transient,
    store_error,
)
from pyhudi.storage.object_store.object_files import MARK, ObjectOutput, ObjectRanges, check_length, find_marked
from pyhudi.storage.object_store.object_options import S3_ENDPOINT, STORE_TYPES, store_settings, store_target, upload_settings
from pyhudi.storage.object_store.object_requests import CLIENT_ERRORS, ObjectClients
from pyhudi.storage.range_file import RangeReader
from pyhudi.storage.storage_option_names import CREDENTIALS, like
from pyhudi.storage.uris import Location, UriMixin, files_below

_DELETE_BATCH = 1000

_NO_TIMEOUT = timedelta(days=1)
_PROBE_NAME = ".pyhudi-probe-"
_BLOB_EXISTS_IN_AZURE = "<Code>BlobAlreadyExists</Code>"


class ObjectStorage(UriMixin):
    """A prefix of a bucket or container."""

    __slots__ = ("_clients", "_options")

    def __init__(self, location: Location, options: tuple[tuple[str, str], ...], clients: ObjectClients) -> None:
        super().__init__(location)
        self._options = options
        self._clients = clients

    @property
    def has_folders(self) -> bool:
        return False

    def spec(self) -> StorageSpec:
        return StorageSpec(self.uri, self._options)

    def child(self, path: str) -> ObjectStorage:
        return ObjectStorage(self._location.child(check_path(path)), self._options, self._clients)

    def read(self, path: str) -> bytes | None:
        stored = self._get(path)
        return None if stored is None else stored[0]

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        check_range(path, offset, length)
        try:
            if length:
                return ObjectRanges(self._clients, self._key(path), self.absolute(path)).read(offset, length)[1]
        except StorageUnavailable as failure:
            # Stores refuse a range that begins at or after the end of the object; its size decides whether that is the
            # cause.
            if is_lost_answer(failure) or self._require(path).size_bytes > offset:
                raise
            return b""
        self._require(path)
        return b""

    def stat(self, path: str) -> FileInfo | None:
        key = self._key(path)
        try:
            meta = self._clients.call("get the status of", self.absolute(path), lambda client: obstore.head_async(client, key))
        except TableState:
            return None
        return self._info(meta)

    def list(self, folder: str) -> Listing:
        prefix = join_path(self._location.path, check_path(folder))
        try:
            # All pages again when one of them breaks off: a listing is read as a whole.
            listing = self._clients.call(
                "list", self.absolute(folder), lambda client: obstore.list_with_delimiter_async(client, prefix or None)
            )
        except TableState:
            return Listing()
        # An object `folder/` created by Hadoop represents the folder and is not a file in it.
        files = [self._info(meta) for meta in listing["objects"] if meta["path"] != prefix]
        folders = [self._relative(path) for path in listing["common_prefixes"]]
        return Listing(tuple(sorted(files, key=lambda info: info.path)), tuple(sorted(folders)))

    def names(self, folder: str) -> tuple[str, ...]:
        return tuple(info.name for info in self.list(folder).files)

    def walk(self, folder: str) -> Iterator[FileInfo]:
        # A flat listing would need fewer requests, but shows Hadoop's `folder/` objects as files.
        return files_below(folder, self.list)

    def is_duplicate_symlink(self, folder: str, marker: str) -> bool:
        check_path(folder)
        return False

    def put(self, path: str, data: bytes) -> None:
        key = self._key(path)
        self._clients.call(
            "write", self.absolute(path), lambda client: obstore.put_async(client, key, data, use_multipart=False), len(data)
        )

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return self._put_on_condition(path, data, "create") is not None

    def read_versioned(self, path: str) -> tuple[bytes, str] | None:
        stored = self._get(path)
        if stored is None:
            return None
        data, meta = stored
        return data, _tag(meta, self.absolute(path))

    def put_if_matches(self, path: str, data: bytes, tag: str) -> str | None:
        version, _, e_tag = tag.partition("\n")
        expected = {name: value for name, value in (("version", version), ("e_tag", e_tag)) if value}
        return self._put_on_condition(path, data, expected)

    def delete(self, paths: Iterable[str]) -> None:
        batch: list[str] = []
        for path in paths:
            batch.append(self._key(path))
            if len(batch) == _DELETE_BATCH:
                self._delete_keys(batch)
                batch = []
        if batch:
            self._delete_keys(batch)

    def delete_folder(self, path: str) -> None:
        self.delete(info.path for info in self.walk(path))

    def make_folder(self, path: str) -> None:
        check_path(path)

    def open_input(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(RangeReader(ObjectRanges(self._clients, self._key(path), self.absolute(path))), mode="r")

    def open_output(self, path: str) -> ObjectOutput:
        return ObjectOutput(self._clients, self._key(path), self.absolute(path))

    def set_modified(self, path: str, modified_ms: int) -> bool:
        return False

    def sweep_unfinished(self, folder: str, before_ms: int) -> int:
        check_path(folder)
        return 0

    def _key(self, path: str) -> str:
        return join_path(self._location.path, check_file_path(path))

    def _relative(self, key: str) -> str:
        return key[len(self._location.path) + 1 :] if self._location.path else key

    def _info(self, meta: Mapping[str, Any]) -> FileInfo:
        modified_ms = round(meta["last_modified"].timestamp() * 1000)
        return FileInfo(self._relative(meta["path"]), meta["size"], modified_ms)

    def _get(self, path: str) -> tuple[bytes, Mapping[str, Any]] | None:
        """The content and metadata of an object; None if it does not exist."""
        key, uri = self._key(path), self.absolute(path)

        async def get(client: Any) -> tuple[bytes, Mapping[str, Any]]:
            response = await obstore.get_async(client, key)
            data = bytes(await response.bytes_async())
            check_length(uri, len(data), response.meta["size"])
            return data, response.meta

        try:
            return self._clients.call("read", uri, get)
        except TableState:
            return None

    def _require(self, path: str) -> FileInfo:
        info = self.stat(path)
        if info is None:
            raise TableState(f"{self.absolute(path)}: no such file")
        return info

    def _put_on_condition(self, path: str, data: bytes, mode: Any) -> str | None:
        key = self._key(path)
        self._probe()
        return self._send(key, self.absolute(path), data, mode)

    def _send(self, key: str, where: str, data: bytes, mode: Any) -> str | None:
        """Conditional PUT, repeated: the tag of the written object, None if another writer was first."""
        mark = uuid.uuid4().hex
        # Whether an earlier request may have succeeded without a response.
        may_have_landed = False

        def send(timeout_s: float) -> str | None:
            nonlocal may_have_landed
            try:
                result = self._clients.request(
                    lambda client: obstore.put_async(client, key, data, mode=mode, use_multipart=False, attributes={MARK: mark}),
                    timeout_s,
                )
                return _tag(result, where)
            except CLIENT_ERRORS as error:
                refused = _refuses(error, mode)
                if refused:
                    return self._tag_if_written_by_this_call(key, where, mark) if may_have_landed else None
                failure = store_error(error, "write", where)
                failure.__cause__ = error
                if refused is False or not isinstance(failure, StorageUnavailable) or not is_transient(error):
                    raise NotRepeatable from failure
                # S3 answers 409 during a concurrent conditional write of the name: no writer has won yet.
                may_have_landed = may_have_landed or http_status(error) != 409
                raise failure from error

        try:
            return repeated(self._clients.limits, send, len(data), changes=True)
        except StorageUnavailable:
            landed = self._tag_if_written_by_this_call(key, where, mark) if may_have_landed else None
            if landed is None:
                raise
            return landed

    def _tag_if_written_by_this_call(self, key: str, where: str, mark: str) -> str | None:
        """The tag of the object if its mark is that of this call."""
        stored = find_marked(self._clients, key, where, mark)
        return None if stored is None else _tag(stored, where)

    def _probe(self) -> None:
        """Check once per process that the endpoint honours conditional PUTs.  Raises Unsupported if it does not."""
        with _probe_mutex:
            if self._clients.endpoint in _probed:
                return
            name = f"{_PROBE_NAME}{uuid.uuid4().hex}"
            key, where = self._key(name), self.absolute(name)
            try:
                if self._send(key, where, b"", "create") is None:
                    return
                try:
                    honoured = self._send(key, where, b"", "create") is None
                finally:
                    # A remaining empty object is harmless.
                    with contextlib.suppress(StorageUnavailable):
                        self._delete_keys([key])
            except TableState:
                return
            if not honoured:
                raise Unsupported(
                    f"{self.uri}: the endpoint ignores the condition of a PUT (If-None-Match: *), so "
                    "concurrent writers would lose commits. Use a store that honours conditional PUTs"
                )
            _probed.add(self._clients.endpoint)

    def _delete_keys(self, keys: Sequence[str]) -> None:
        uri = self.absolute(self._relative(keys[0])) if len(keys) == 1 else f"{len(keys)} objects of {self.uri}"
        try:
            self._clients.call("delete", uri, lambda client: obstore.delete_async(client, keys))
        except TableState:
            # S3 ignores missing objects; GCS and Azure report an error that does not identify the deleted ones.
            for key in keys if len(keys) > 1 else ():
                self._delete_keys([key])


def _tag(meta: Mapping[str, Any], where: str) -> str:
    """The tag of an object version.  Raises Unsupported if the store returns neither etag nor version."""
    # Azure and S3 compare the etag, GCS the generation, which obstore returns as the version.
    tag = f"{meta['version'] or ''}\n{meta['e_tag'] or ''}"
    if tag == "\n":
        raise Unsupported(f"{where}: the store returns no etag, so objects cannot be replaced atomically. Use another store")
    return tag


_probed: set[tuple[str, ...]] = set()
_probe_mutex = threading.Lock()


def _refuses(error: Exception, mode: Any) -> bool | None:
    """Return True if a response means that the PUT's condition is false, None if it does not decide, False for other errors."""
    if isinstance(error, AlreadyExistsError | PreconditionError):
        if is_missing_bucket(error):
            return False
        # Azure refuses by a 409 with its own code; any other 409 means that the name is being written.
        return None if http_status(error) == 409 and _BLOB_EXISTS_IN_AZURE not in str(error) else True
    if mode == "create":
        return None
    if http_status(error) == 412:
        return True
    absent = isinstance(error, FileNotFoundError | NotFoundError) and isinstance(store_error(error, "write", ""), TableState)
    return True if absent else None


@cache
def _knows_endpoint_of_s3() -> bool:
    settings: Any = {S3_ENDPOINT: "https://127.0.0.1"}
    try:
        S3Store("bucket", config=settings)
    except UnknownConfigurationKeyError:
        return False
    except BaseError:
        # The environment may have an incomplete credential: the setting itself was accepted.
        return True
    return True


def _without_values(line: str, config: Mapping[str, Any]) -> str:
    """Redact secret settings in a message of the client."""
    for name, value in config.items():
        if isinstance(value, str) and redact_secret(name, value) != value:
            line = line.replace(value, REDACTED)
    return line


def open_objects(location: Location, options: dict[str, str]) -> Storage:
    """The storage of an object store's URI.  Sends no request.

    Raises:
        InvalidRequest: Unknown option, or a missing option that the store needs.
    """
    kind = STORE_TYPES[location.scheme]
    config, client, limits = store_settings(kind, location, options)
    target, config = store_target(kind, location, config)
    build = {"s3": S3Store, "gcs": GCSStore, "azure": AzureStore}[kind]
    if S3_ENDPOINT in config and not _knows_endpoint_of_s3():
        del config[S3_ENDPOINT]
    upload_client, upload_retry = upload_settings(limits)
    try:
        clients = ObjectClients(
            # Each request gets a time limit of its own.
            build(target, config=config, client_options={"timeout": _NO_TIMEOUT, **client}, retry_config={"max_retries": 0}),
            build(target, config=config, client_options={**upload_client, **client}, retry_config=upload_retry),
            limits,
            (kind, str(target), *(str(config.get(name, "")) for name in ("endpoint", "base_url", "account_name"))),
        )
    except UnknownConfigurationKeyError as error:
        name = str(error).partition("'")[2].partition("'")[0]
        raise InvalidRequest(f"{location.uri}: {first_line(error).rstrip('.')}{like(kind, name)}") from error
    except (BaseError, ValueError, TypeError) as error:
        line = _without_values(first_line(error), config)
        # The client's error may contain a secret value, so it is not chained as the cause.
        raise InvalidRequest(f"{location.uri}: invalid storage options: {line}; {CREDENTIALS[kind]}") from None
    return ObjectStorage(location, tuple(sorted(options.items())), clients)

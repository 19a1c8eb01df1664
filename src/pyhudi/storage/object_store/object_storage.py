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
import os
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from pyhudi.storage.object_store.object_errors import first_line, http_status, is_missing_bucket, store_error
from pyhudi.storage.object_store.object_files import ObjectOutput, ObjectRanges
from pyhudi.storage.object_store.object_options import RETRY_TIMEOUT, S3_ENDPOINT, STORE_TYPES, store_settings, store_target
from pyhudi.storage.range_file import RangeReader
from pyhudi.storage.storage_option_names import CREDENTIALS, like
from pyhudi.storage.uris import Location, UriMixin, files_below

_DELETE_BATCH = 1000

# Conditional writes are retried here, not by the client.
_MARK = "pyhudiput"
_CONDITIONAL_ATTEMPTS = 6
_FIRST_PAUSE_S = 0.05
_PROBE_NAME = ".pyhudi-probe-"
_BLOB_EXISTS_IN_AZURE = "<Code>BlobAlreadyExists</Code>"


class ObjectStorage(UriMixin):
    """A prefix of a bucket or container."""

    __slots__ = ("_options", "_stores")

    def __init__(self, location: Location, options: tuple[tuple[str, str], ...], stores: _Stores) -> None:
        super().__init__(location)
        self._options = options
        self._stores = stores

    @property
    def has_folders(self) -> bool:
        return False

    def spec(self) -> StorageSpec:
        return StorageSpec(self.uri, self._options)

    def child(self, path: str) -> ObjectStorage:
        return ObjectStorage(self._location.child(check_path(path)), self._options, self._stores)

    def read(self, path: str) -> bytes | None:
        stored = self._get(path)
        return None if stored is None else stored[0]

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        check_range(path, offset, length)
        key = self._key(path)
        try:
            if length:
                return bytes(obstore.get_range(self._stores.with_retries, key, start=offset, length=length))
        except (BaseError, OSError, ValueError) as error:
            # Stores refuse a range that begins at or after the end of the object; its size decides whether that is the
            # cause.
            if isinstance(error, FileNotFoundError | NotFoundError) or not self._ends_before(path, offset):
                raise store_error(error, "read", self.absolute(path)) from error
            return b""
        self._require(path)
        return b""

    def stat(self, path: str) -> FileInfo | None:
        key = self._key(path)
        try:
            return self._info(obstore.head(self._stores.with_retries, key))
        except (FileNotFoundError, NotFoundError):
            return None
        except (BaseError, OSError, ValueError) as error:
            raise store_error(error, "get the status of", self.absolute(path)) from error

    def list(self, folder: str) -> Listing:
        prefix = join_path(self._location.path, check_path(folder))
        try:
            listing = obstore.list_with_delimiter(self._stores.with_retries, prefix or None)
        except (BaseError, OSError, ValueError) as error:
            translated = store_error(error, "list", self.absolute(folder))
            if isinstance(translated, TableState):
                return Listing()
            raise translated from error
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
        try:
            obstore.put(self._stores.with_retries, key, data, use_multipart=False)
        except (BaseError, OSError, ValueError) as error:
            raise store_error(error, "write", self.absolute(path)) from error

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
        return pa.PythonFile(RangeReader(ObjectRanges(self._stores.with_retries, self._key(path), self.absolute(path))), mode="r")

    def open_output(self, path: str) -> ObjectOutput:
        return ObjectOutput(self._stores.with_retries, self._key(path), self.absolute(path))

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
        key = self._key(path)
        try:
            response = obstore.get(self._stores.with_retries, key)
            return bytes(response.bytes()), response.meta
        except (BaseError, OSError, ValueError) as error:
            translated = store_error(error, "read", self.absolute(path))
            if isinstance(translated, TableState):
                return None
            raise translated from error

    def _require(self, path: str) -> FileInfo:
        info = self.stat(path)
        if info is None:
            raise TableState(f"{self.absolute(path)}: no such file")
        return info

    def _ends_before(self, path: str, offset: int) -> bool:
        return self._require(path).size_bytes <= offset

    def _put_on_condition(self, path: str, data: bytes, mode: Any) -> str | None:
        key = self._key(path)
        self._probe()
        return self._send(key, self.absolute(path), data, mode)

    def _send(self, key: str, where: str, data: bytes, mode: Any) -> str | None:
        """Conditional PUT with retries: the tag of the written object, None if another writer was first."""
        attributes = {_MARK: uuid.uuid4().hex}
        deadline = time.monotonic() + RETRY_TIMEOUT.total_seconds()
        # Whether an earlier request may have succeeded without a response.
        may_have_landed = False
        for attempt in range(self._stores.attempts):
            try:
                result = obstore.put(
                    self._stores.without_retries, key, data, mode=mode, use_multipart=False, attributes=attributes
                )
                return _tag(result, where)
            except (BaseError, OSError, ValueError) as error:
                refused = _refuses(error, mode)
                if refused:
                    return self._tag_if_written_by_this_call(key, where, attributes) if may_have_landed else None
                failure = store_error(error, "write", where)
                if refused is False or not isinstance(failure, StorageUnavailable):
                    raise failure from error
                # S3 answers 409 during a concurrent conditional write of the name: no writer has won yet.
                may_have_landed = may_have_landed or http_status(error) != 409
                if attempt + 1 == self._stores.attempts or time.monotonic() > deadline:
                    landed = self._tag_if_written_by_this_call(key, where, attributes) if may_have_landed else None
                    if landed is not None:
                        return landed
                    raise failure from error
                time.sleep(_FIRST_PAUSE_S * 2**attempt)
        raise InvalidRequest("a conditional write needs at least one attempt")

    def _tag_if_written_by_this_call(self, key: str, where: str, attributes: Mapping[str, str]) -> str | None:
        """The tag of the object if its attributes are those of this call."""
        try:
            stored = obstore.get(self._stores.with_retries, key, options={"head": True})
            is_ours = stored.attributes.get(_MARK) == attributes[_MARK]
            return _tag(stored.meta, where) if is_ours else None
        except (FileNotFoundError, NotFoundError):
            return None
        except (BaseError, OSError, ValueError) as error:
            raise store_error(error, "get the status of", where) from error

    def _probe(self) -> None:
        """Check once per process that the endpoint honours conditional PUTs.  Raises Unsupported if it does not."""
        with _probe_mutex:
            if self._stores.endpoint in _probed:
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
            _probed.add(self._stores.endpoint)

    def _delete_keys(self, keys: Sequence[str]) -> None:
        try:
            obstore.delete(self._stores.with_retries, keys)
        except (FileNotFoundError, NotFoundError):
            # S3 ignores missing objects; GCS and Azure report an error that does not identify the deleted ones.
            for key in keys:
                try:
                    obstore.delete(self._stores.with_retries, key)
                except (FileNotFoundError, NotFoundError):
                    continue
                except (BaseError, OSError, ValueError) as error:
                    raise store_error(error, "delete", key) from error
        except (BaseError, OSError, ValueError) as error:
            raise store_error(error, "delete", f"{len(keys)} objects of {self.uri}") from error


def _tag(meta: Mapping[str, Any], where: str) -> str:
    """The tag of an object version.  Raises Unsupported if the store returns neither etag nor version."""
    # Azure and S3 compare the etag, GCS the generation, which obstore returns as the version.
    tag = f"{meta['version'] or ''}\n{meta['e_tag'] or ''}"
    if tag == "\n":
        raise Unsupported(f"{where}: the store returns no etag, so objects cannot be replaced atomically. Use another store")
    return tag


@dataclass(frozen=True, slots=True)
class _Stores:
    """Two clients of one bucket: `with_retries` repeats failed requests, `without_retries` sends each once.

    attempts: of a conditional write.  endpoint: key of the bucket among those of this process.
    Raises Unsupported in a forked child whose parent had sent requests: the client would wait for the parent's threads
    forever.
    """

    _patient: Any
    _once: Any
    attempts: int
    endpoint: tuple[str, ...]

    @property
    def with_retries(self) -> Any:
        _check_client()
        return self._patient

    @property
    def without_retries(self) -> Any:
        _check_client()
        return self._once


# The process in which the object store client was first used.
_client_process: int | None = None


def _check_client() -> None:
    global _client_process
    if _client_process is None:
        _client_process = os.getpid()
    elif _client_process != os.getpid():
        raise Unsupported(
            f"object stores cannot be used in this process: it was forked from process {_client_process}, which had used them, "
            'and their client does not survive a fork. Start processes with the method "spawn" or "forkserver"'
        )


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
    config, client, retry = store_settings(kind, location, options)
    target, config = store_target(kind, location, config)
    build = {"s3": S3Store, "gcs": GCSStore, "azure": AzureStore}[kind]
    if S3_ENDPOINT in config and not _knows_endpoint_of_s3():
        del config[S3_ENDPOINT]
    try:
        stores = _Stores(
            build(target, config=config, client_options=client, retry_config=retry),
            build(target, config=config, client_options=client, retry_config={**retry, "max_retries": 0}),
            1 + min(int(retry.get("max_retries", _CONDITIONAL_ATTEMPTS - 1)), _CONDITIONAL_ATTEMPTS - 1),
            (kind, str(target), *(str(config.get(name, "")) for name in ("endpoint", "base_url", "account_name"))),
        )
    except UnknownConfigurationKeyError as error:
        name = str(error).partition("'")[2].partition("'")[0]
        raise InvalidRequest(f"{location.uri}: {first_line(error).rstrip('.')}{like(kind, name)}") from error
    except (BaseError, ValueError, TypeError) as error:
        line = _without_values(first_line(error), config)
        # The client's error may contain a secret value, so it is not chained as the cause.
        raise InvalidRequest(f"{location.uri}: invalid storage options: {line}; {CREDENTIALS[kind]}") from None
    return ObjectStorage(location, tuple(sorted(options.items())), stores)

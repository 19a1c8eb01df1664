"""Storage in S3, Google Cloud Storage and Azure, through obstore.

    s3://bucket/path  s3a://  s3n://          gs://bucket/path  gcs://
    az://container/path                       abfs[s]://container@account.dfs.core.windows.net/path

Names of objects are the paths as they are, without percent-encoding.  An object appears whole, when its upload is complete,
and lists at once (all three stores are strongly consistent).  What each guarantee rests on:

1. `put_if_absent` and `put_if_matches` are conditional PUTs (If-None-Match: *, If-Match: etag; a generation in GCS).  Each call
   gives its object a mark of its own (user metadata `pyhudiput`): a request without an answer, or that the store was too busy
   for, is sent again, and where that one is refused, the mark tells our own object from another writer's.  Endpoints that
   take such a PUT and ignore its condition would lose commits: before the first one of a process a probe finds out, and the
   store is Unsupported.
2. `open_output` is a multipart upload of 8 MiB parts, at most four under way.  A `with` block that fails leaves the parts as an
   unfinished upload, which nobody can see but which is stored until a lifecycle rule of the bucket ends it.
3. `open_input` fetches the last 64 KiB when it opens, because that is where Parquet and HFile begin to read; then what is asked
   for, with read-ahead for small reads and several requests at once for large ones.

Options are those of obstore with or without the `aws_`, `google_`, `azure_storage_` prefix, in any case, and the Hadoop names
that `_HADOOP_OPTIONS` lists, with or without `spark.hadoop.`.  Unnamed credentials come from the environment or the machine's
role.  An option that nobody knows is InvalidRequest.

Tested against an S3 server.  For GCS and Azure only the construction is tested.

What this does not do: `delete_folder` leaves the empty `folder/` objects that some Hadoop versions write, no profile files of
the AWS command line are read, and stores that lack conditional PUTs cannot hold a table.
"""

from __future__ import annotations

import contextlib
import io
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any

import obstore
import pyarrow as pa
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotFoundError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
from obstore.store import AzureStore, GCSStore, S3Store

from pyhudi.errors import HudiError, InvalidRequest, StorageUnavailable, TableState, Unsupported
from pyhudi.format.paths import join_path
from pyhudi.format.properties import shown
from pyhudi.storage.base import FileInfo, Listing, Storage, StorageSpec, check_file_path, check_path, check_range
from pyhudi.storage.uris import Location, without_secrets

_PART_BYTES = 8 * 1024 * 1024
_PARTS_AT_ONCE = 4
_TAIL_BYTES = 64 * 1024
_LISTINGS_AT_ONCE = 8
_READ_AHEAD_BYTES = 128 * 1024
_DELETE_BATCH = 1000

# Long enough for a part over a slow line; the client's own default of 30 seconds is not.
_TIMEOUT = "120s"
_CONNECT_TIMEOUT = "10s"
_RETRY_TIMEOUT = timedelta(seconds=60)

# Conditional writes are repeated by us, not by the client.
_MARK = "pyhudiput"
_CONDITIONAL_ATTEMPTS = 6
_FIRST_PAUSE_S = 0.05
_PROBE_NAME = ".pyhudi-probe-"

_KINDS = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gcs",
    "gcs": "gcs",
    "az": "azure",
    "abfs": "azure",
    "abfss": "azure",
}
OBJECT_SCHEMES = tuple(_KINDS)

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


class ObjectStorage:
    """A prefix of a bucket or container."""

    __slots__ = ("_location", "_options", "_stores")

    def __init__(self, location: Location, options: tuple[tuple[str, str], ...], stores: _Stores) -> None:
        self._location = location
        self._options = options
        self._stores = stores

    def __repr__(self) -> str:
        return f"ObjectStorage({self.uri!r})"

    @property
    def uri(self) -> str:
        return self._location.uri

    @property
    def has_folders(self) -> bool:
        return False

    def spec(self) -> StorageSpec:
        return StorageSpec(self.uri, self._options)

    def child(self, path: str) -> ObjectStorage:
        return ObjectStorage(self._location.child(check_path(path)), self._options, self._stores)

    def absolute(self, path: str) -> str:
        return self._location.child(check_path(path)).uri

    def read(self, path: str) -> bytes | None:
        found = self._get(path)
        return None if found is None else found[0]

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        check_range(path, offset, length)
        key = self._key(path)
        try:
            if length:
                return bytes(obstore.get_range(self._stores.patient, key, start=offset, length=length))
        except (BaseError, OSError, ValueError) as error:
            # Stores refuse a range that begins at the end of the object or beyond; whether it does, the size tells.
            if isinstance(error, FileNotFoundError | NotFoundError) or not self._ends_before(path, offset):
                raise _translate(error, "read", self.absolute(path)) from error
            return b""
        self._require(path)
        return b""

    def stat(self, path: str) -> FileInfo | None:
        key = self._key(path)
        try:
            return self._info(obstore.head(self._stores.patient, key))
        except (FileNotFoundError, NotFoundError):
            return None
        except (BaseError, OSError, ValueError) as error:
            raise _translate(error, "look at", self.absolute(path)) from error

    def list(self, folder: str) -> Listing:
        prefix = join_path(self._location.path, check_path(folder))
        try:
            found = obstore.list_with_delimiter(self._stores.patient, prefix or None)
        except (BaseError, OSError, ValueError) as error:
            translated = _translate(error, "list", self.absolute(folder))
            if isinstance(translated, TableState):
                return Listing()
            raise translated from error
        # The object `folder/` that Hadoop may have made stands for the folder and is not a file in it.
        files = [self._info(meta) for meta in found["objects"] if meta["path"] != prefix]
        folders = [self._relative(path) for path in found["common_prefixes"]]
        return Listing(tuple(sorted(files, key=lambda info: info.path)), tuple(sorted(folders)))

    def walk(self, folder: str) -> Iterator[FileInfo]:
        # A flat listing would be fewer requests, but shows Hadoop's `folder/` objects as if they were files.
        level: tuple[str, ...] = (check_path(folder),)
        with ThreadPoolExecutor(_LISTINGS_AT_ONCE, "pyhudi-list") as pool:
            while level:
                listings = list(pool.map(self.list, level))
                for listing in listings:
                    yield from listing.files
                level = tuple(path for listing in listings for path in listing.folders)

    def is_second_way(self, folder: str, mark: str) -> bool:
        check_path(folder)
        return False

    def put(self, path: str, data: bytes) -> None:
        key = self._key(path)
        try:
            obstore.put(self._stores.patient, key, data, use_multipart=False)
        except (BaseError, OSError, ValueError) as error:
            raise _translate(error, "write", self.absolute(path)) from error

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return self._put_on_condition(path, data, "create")

    def read_versioned(self, path: str) -> tuple[bytes, str] | None:
        found = self._get(path)
        if found is None:
            return None
        # Azure and S3 compare the etag, GCS the generation, which stands where S3 has its version.
        data, meta = found
        tag = f"{meta['version'] or ''}\n{meta['e_tag'] or ''}"
        if tag == "\n":
            raise Unsupported(f"{self.absolute(path)}: the store gives its objects no etag, so none can be replaced safely")
        return data, tag

    def put_if_matches(self, path: str, data: bytes, tag: str) -> bool:
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
        return pa.PythonFile(_RangeReader(self._stores.patient, self._key(path), self.absolute(path)), mode="r")

    def open_output(self, path: str) -> _ObjectOutput:
        return _ObjectOutput(self._stores.patient, self._key(path), self.absolute(path))

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
        """The whole object with what the store says about it."""
        key = self._key(path)
        try:
            found = obstore.get(self._stores.patient, key)
            return bytes(found.bytes()), found.meta
        except (BaseError, OSError, ValueError) as error:
            translated = _translate(error, "read", self.absolute(path))
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

    def _put_on_condition(self, path: str, data: bytes, mode: Any) -> bool:
        key = self._key(path)
        self._probe()
        return self._send(key, self.absolute(path), data, mode)

    def _send(self, key: str, where: str, data: bytes, mode: Any) -> bool:
        """A conditional PUT with its repeats; False when its condition does not hold, for another writer's sake."""
        attributes = {_MARK: uuid.uuid4().hex}
        deadline = time.monotonic() + _RETRY_TIMEOUT.total_seconds()
        # Whether a request may have landed without our hearing of it.
        unsure = False
        for attempt in range(self._stores.attempts):
            try:
                obstore.put(self._stores.once, key, data, mode=mode, use_multipart=False, attributes=attributes)
                return True
            except (BaseError, OSError, ValueError) as error:
                refused = _refuses(error, mode)
                if refused:
                    return unsure and self._bears(key, where, attributes)
                failure = _translate(error, "write", where)
                if refused is False or not isinstance(failure, StorageUnavailable):
                    raise failure from error
                # S3 answers 409 while another conditional write of the name is under way: nobody has won yet.
                unsure = unsure or _status(error) != 409
                if attempt + 1 == self._stores.attempts or time.monotonic() > deadline:
                    if unsure and self._bears(key, where, attributes):
                        return True
                    raise failure from error
                time.sleep(_FIRST_PAUSE_S * 2**attempt)
        raise InvalidRequest("a conditional write is attempted once at the least")

    def _bears(self, key: str, where: str, attributes: Mapping[str, str]) -> bool:
        """Whether the object is the one that we wrote with these attributes."""
        try:
            found = obstore.get(self._stores.patient, key, options={"head": True}).attributes
        except (FileNotFoundError, NotFoundError):
            return False
        except (BaseError, OSError, ValueError) as error:
            raise _translate(error, "look at", where) from error
        return found.get(_MARK) == attributes[_MARK]

    def _probe(self) -> None:
        """Find out, once in a process, whether the endpoint honours conditions.  Raises Unsupported when it does not."""
        with _probe_mutex:
            if self._stores.endpoint in _probed:
                return
            name = f"{_PROBE_NAME}{uuid.uuid4().hex}"
            key, where = self._key(name), self.absolute(name)
            try:
                if not self._send(key, where, b"", "create"):
                    return
                try:
                    honoured = not self._send(key, where, b"", "create")
                finally:
                    # An empty object that stays is in nobody's way.
                    with contextlib.suppress(StorageUnavailable):
                        self._delete_keys([key])
            except TableState:
                return
            if not honoured:
                raise Unsupported(
                    f"{self.uri}: the endpoint ignores the condition of a PUT that the object be absent (If-None-Match: *); "
                    "writers could not be told apart there, and commits would be lost: use a store that honours it"
                )
            _probed.add(self._stores.endpoint)

    def _delete_keys(self, keys: Sequence[str]) -> None:
        try:
            obstore.delete(self._stores.patient, keys)
        except (FileNotFoundError, NotFoundError):
            # S3 takes absent objects without an error; GCS and Azure do not, and leave unsaid which of the others are gone.
            for key in keys:
                try:
                    obstore.delete(self._stores.patient, key)
                except (FileNotFoundError, NotFoundError):
                    continue
                except (BaseError, OSError, ValueError) as error:
                    raise _translate(error, "delete", key) from error
        except (BaseError, OSError, ValueError) as error:
            raise _translate(error, "delete", f"{len(keys)} objects of {self.uri}") from error


@dataclass(frozen=True, slots=True)
class _Stores:
    """One bucket twice: `patient` repeats requests that fail, `once` sends each a single time.

    attempts: at a conditional write.  endpoint: what stands for the bucket among those of this process.
    Raises Unsupported in a child of fork whose parent had sent requests: the client waits for its threads there, for ever.
    """

    _patient: Any
    _once: Any
    attempts: int
    endpoint: tuple[str, ...]

    @property
    def patient(self) -> Any:
        _check_client()
        return self._patient

    @property
    def once(self) -> Any:
        _check_client()
        return self._once


# The process in which the client of object stores has begun to work.
_client_process: int | None = None


def _check_client() -> None:
    global _client_process
    if _client_process is None:
        _client_process = os.getpid()
    elif _client_process != os.getpid():
        raise Unsupported(
            f"this process was forked from {_client_process}, which had used object stores, and their client does not survive "
            'that; start processes by the methods "spawn" or "forkserver"'
        )


_probed: set[tuple[str, ...]] = set()
_probe_mutex = threading.Lock()


def _refuses(error: Exception, mode: Any) -> bool | None:
    """True when an answer says that the condition of a PUT does not hold, None when it says nothing about it."""
    if isinstance(error, AlreadyExistsError | PreconditionError):
        if _lacks_bucket(error):
            return False
        return None if _status(error) == 409 else True
    if mode == "create":
        return None
    if _status(error) == 412:
        return True
    absent = isinstance(error, FileNotFoundError | NotFoundError) and isinstance(_translate(error, "write", ""), TableState)
    return True if absent else None


def open_objects(location: Location, options: dict[str, str]) -> Storage:
    """The storage of an object store's URI.  Sends no request.

    Raises InvalidRequest for an option that the store does not know, or that is missing to reach it.
    """
    kind = _KINDS[location.scheme]
    config, client, retry = _settings(kind, location, options)
    target, config = _target(kind, location, config)
    build = {"s3": S3Store, "gcs": GCSStore, "azure": AzureStore}[kind]
    try:
        stores = _Stores(
            build(target, config=config, client_options=client, retry_config=retry),
            build(target, config=config, client_options=client, retry_config={**retry, "max_retries": 0}),
            1 + min(int(retry.get("max_retries", _CONDITIONAL_ATTEMPTS - 1)), _CONDITIONAL_ATTEMPTS - 1),
            (kind, str(target), *(str(config.get(name, "")) for name in ("endpoint", "base_url", "account_name"))),
        )
    except UnknownConfigurationKeyError as error:
        raise InvalidRequest(f"{location.uri}: {_first_line(error)}") from error
    except (BaseError, ValueError, TypeError) as error:
        raise InvalidRequest(f"{location.uri}: cannot be opened with these storage options: {_first_line(error)}") from error
    return ObjectStorage(location, tuple(sorted(options.items())), stores)


class _RangeReader(io.RawIOBase):
    """A seekable file over ranged reads.  Arrow wraps it and never calls it from two threads at once.

    It keeps the file's tail and one window: a read that neither holds costs one request.
    """

    def __init__(self, store: Any, key: str, uri: str) -> None:
        super().__init__()
        self._store = store
        self._key = key
        self._uri = uri
        self._position = 0
        self._size_bytes, self._tail = self._open()
        self._tail_start = self._size_bytes - len(self._tail)
        self._window = memoryview(b"")
        self._window_start = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def size(self) -> int:
        return self._size_bytes

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, length: int | None = -1) -> bytes:
        remaining = max(0, self._size_bytes - self._position)
        length = remaining if length is None or length < 0 else min(length, remaining)
        if not length:
            return b""
        data = self._range(self._position, length)
        self._position += length
        return data

    def readall(self) -> bytes:
        return self.read(-1)

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _range(self, start: int, length: int) -> bytes:
        if start >= self._tail_start:
            return bytes(self._tail[start - self._tail_start :][:length])
        offset = start - self._window_start
        if not (offset >= 0 and offset + length <= len(self._window)):
            if length >= _READ_AHEAD_BYTES:
                return self._fetch(start, length)
            self._window = memoryview(self._fetch(start, min(_READ_AHEAD_BYTES, self._size_bytes - start)))
            self._window_start, offset = start, 0
        return bytes(self._window[offset : offset + length])

    def _fetch(self, start: int, length: int) -> bytes:
        starts = list(range(start, start + length, _PART_BYTES))
        ends = [min(begin + _PART_BYTES, start + length) for begin in starts]
        try:
            # Without coalescing, because the parts are one range that was cut to be fetched at once.
            parts = obstore.get_ranges(self._store, self._key, starts=starts, ends=ends, coalesce=0)
        except (BaseError, OSError, ValueError) as error:
            raise _translate(error, "read", self._uri) from error
        data = b"".join(parts) if len(parts) > 1 else bytes(parts[0])
        if len(data) != length:
            raise StorageUnavailable(f"{self._uri}: asked for {length} bytes at {start}, got {len(data)}")
        return data

    def _open(self) -> tuple[int, memoryview]:
        try:
            try:
                found = obstore.get(self._store, self._key, options={"range": {"suffix": _TAIL_BYTES}})
                return found.meta["size"], memoryview(bytes(found.bytes()))
            except (FileNotFoundError, NotFoundError):
                raise
            except (BaseError, OSError, ValueError):
                # An empty object has no last bytes, and Azure knows no request for them.  A real failure comes again.
                size_bytes = obstore.head(self._store, self._key)["size"]
                return size_bytes, memoryview(b"")
        except (BaseError, OSError, ValueError) as error:
            raise _translate(error, "read", self._uri) from error


class _PartWriter(io.RawIOBase):
    """What Arrow writes into: hands bytes on to the upload, and leaves its end to `_ObjectOutput`."""

    def __init__(self, upload: Any, uri: str) -> None:
        super().__init__()
        self._upload = upload
        self._uri = uri
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        # Arrow's buffers say that they hold signed bytes, which the upload does not take.
        block = memoryview(data).cast("B")
        try:
            self._upload.write(block)
        except (BaseError, OSError, ValueError) as error:
            raise _translate(error, "write", self._uri) from error
        self._position += block.nbytes
        return block.nbytes


class _ObjectOutput:
    """The `with` block of `open_output`: a multipart upload that is completed at a clean end only."""

    def __init__(self, store: Any, key: str, uri: str) -> None:
        self._store = store
        self._key = key
        self._uri = uri
        self._upload: Any = None
        self._sink: pa.NativeFile | None = None

    def __enter__(self) -> pa.NativeFile:
        self._upload = obstore.open_writer(self._store, self._key, buffer_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE)
        self._sink = pa.PythonFile(_PartWriter(self._upload, self._uri), mode="w")
        return self._sink

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._sink is not None
        upload, self._upload = self._upload, None
        self._sink.close()
        if kind is None:
            try:
                upload.close()
            except (BaseError, OSError, ValueError) as failure:
                raise _translate(failure, "write", self._uri) from failure


def _settings(kind: str, location: Location, options: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Sort options into those of the store, of the HTTP client and of the repeats."""
    named: dict[str, tuple[str, str]] = {}
    for given, value in options.items():
        name, meant = _named(kind, location, given, value)
        if name in named and named[name][1] != meant:
            raise InvalidRequest(f"storage options {named[name][0]!r} and {given!r} both set {name}, to different values")
        named[name] = (given, meant)
    config: dict[str, Any] = {}
    client: dict[str, Any] = {"timeout": _TIMEOUT, "connect_timeout": _CONNECT_TIMEOUT}
    retry: dict[str, Any] = {"retry_timeout": _RETRY_TIMEOUT}
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


def _target(kind: str, location: Location, config: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The bucket or container, and the account that an Azure URI may name."""
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


def _first_line(error: BaseException) -> str:
    # What follows is the debug form of the same error, twenty lines long.
    return without_secrets(str(error).partition("\n")[0].strip())


def _status(error: BaseException) -> int | None:
    """The HTTP status that the store answered with, as far as the message tells."""
    _, found, rest = str(error).partition("status code: ")
    return int(rest[:3]) if found and rest[:3].isdecimal() else None


def _lacks_bucket(error: BaseException) -> bool:
    return any(code in str(error) for code in ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist"))


def _translate(error: BaseException, verb: str, uri: str) -> HudiError:
    line = _first_line(error)
    if _lacks_bucket(error):
        return InvalidRequest(f"cannot {verb} {uri}: its bucket does not exist")
    if isinstance(error, FileNotFoundError | NotFoundError):
        return TableState(f"{uri}: no such file")
    if isinstance(error, PermissionError | PermissionDeniedError | UnauthenticatedError) or _status(error) in (401, 403):
        return InvalidRequest(f"cannot {verb} {uri}: the store refuses these credentials; check storage_options: {line}")
    if isinstance(error, NotSupportedError | NotImplementedError):
        return Unsupported(f"cannot {verb} {uri}: the store has no such operation: {line}")
    if isinstance(error, InvalidPathError | ValueError):
        return InvalidRequest(f"cannot {verb} {uri}: {line}")
    if "builder error" in line:
        return InvalidRequest(f"cannot {verb} {uri}: set allow_http=true to reach an endpoint without TLS: {line}")
    return StorageUnavailable(f"cannot {verb} {uri}: {line}")

"""Parse and format table URIs as Hadoop's Path does.

    /data/t   file:/data/t   file:///data/t   file://localhost/data/t      -> file:/data/t
    s3://bucket/t//x/        s3a://bucket/t                                -> scheme unchanged, '//' and trailing '/'
    dropped

There is no percent-decoding and no query or fragment. A space, '%', '#' or '?' is literal, because a partition folder
such as `day=2026%2F11` has that exact name on disk. A relative path is resolved against the working directory,
and `~` or `~user` at the start of a path is the home directory, as in os.path.expanduser.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pyhudi.errors import InvalidRequest
from pyhudi.storage.base import FileInfo, Listing, check_path
from pyhudi.storage.thread_pool import in_threads

# At least two characters, so that a Windows drive is not parsed as a scheme.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?=/)")

# Aliases of one store: a table written through one of them is found through the others.
_SAME_STORE = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "wasbs": "wasb"}

_ATOMIC_UPLOADS = ("s3:", "s3a:", "gs:", "gcs:", "az:", "abfs:", "abfss:", "memory:")
_SCHEMES_WITHOUT_USER = frozenset({"s3", "s3a", "s3n", "gs", "gcs", "hdfs", "webhdfs"})
_SECRET_NAME = r"(?:sig|signature|token|[a-z-]*(?:signature|credential|security-token|secret|key))="
# A signature or token in a query string.
_SIGNED = re.compile(rf"\?(?:.*&)?{_SECRET_NAME}", re.IGNORECASE)
_SECRETS = (
    (re.compile(r"(?<=://)[^/@\s]+:[^/@\s]*@"), "***@"),
    (re.compile(rf"(?<=[?&]){_SECRET_NAME}[^&\s)\"']*", re.IGNORECASE), "***"),
)


def has_atomic_uploads(uri: str) -> bool:
    """Whether a file of this storage is complete or absent, so that readers never see a part of it."""
    return uri.startswith(_ATOMIC_UPLOADS)


def without_secrets(text: str) -> str:
    """Redact user information and signatures in the URLs of an error message."""
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


def sqlite_path(uri: str) -> str:
    """The file of a SQLite URI: sqlite:///relative/path, sqlite:////absolute/path or sqlite:///~/path."""
    return os.path.expanduser(uri.removeprefix("sqlite:///").removeprefix("sqlite:"))


@dataclass(frozen=True, slots=True)
class Location:
    """A parsed URI.

    Attributes:
        scheme: In lower case.
        authority: Bucket or container with its host; '' for files.
        path: '/'-separated, without a leading '/'.
    """

    scheme: str
    authority: str
    path: str

    @property
    def uri(self) -> str:
        """The text form: `file:/path` for files, `scheme://authority/path` otherwise."""
        if self.scheme == "file":
            return f"file:/{self.path}"
        return f"{self.scheme}://{self.authority}/{self.path}" if self.path else f"{self.scheme}://{self.authority}"

    @property
    def key(self) -> str:
        """Canonical text of all spellings of one location: s3://b/t and s3a://b/t, file:/t and /t."""
        return Location(_SAME_STORE.get(self.scheme, self.scheme), self.authority, self.path).uri

    @property
    def file_path(self) -> str:
        """The path on the local disk."""
        return self.path if os.name == "nt" else f"/{self.path}"

    def child(self, path: str) -> Location:
        """The location of a path relative to this one."""
        return Location(self.scheme, self.authority, "/".join(part for part in (self.path, path) if part))


def check_working_directory(use: str) -> None:
    """Raise InvalidRequest if the working directory of this process was deleted. use: what needs it, for the message."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise InvalidRequest(
            f"{use} needs the working directory of this process, which was deleted: change to an existing folder"
        ) from None


def absolute_path(text: str) -> str:
    """Return the absolute form of a path of the local file system.  Raises InvalidRequest without a working directory."""
    try:
        return os.path.abspath(text)
    except FileNotFoundError:
        raise InvalidRequest(
            f"the path {text!r} is relative, and the working directory of this process was deleted: pass an absolute path, or "
            "change to an existing folder"
        ) from None


def parse_uri(text: str) -> Location:
    """Parse a URI or a plain path.

    Raises:
        InvalidRequest: The text is empty, has a '.' or '..' part in a URI, or contains credentials.  Credentials are
            not repeated in the message; URIs appear in messages, plans and logs.
    """
    if not text or "\x00" in text:
        raise InvalidRequest(f"a table needs a path or URI, found {text!r}")
    matched = _SCHEME.match(text)
    if matched is None:
        return Location("file", "", "/".join(_parts(absolute_path(os.path.expanduser(text)).replace(os.sep, "/"))))
    scheme, path_text = matched.group(1).lower(), text[matched.end() :]
    authority = ""
    if path_text.startswith("//"):
        authority, _, path_text = path_text[2:].partition("/")
    user, at, _ = authority.rpartition("@")
    if (at and (":" in user or scheme in _SCHEMES_WITHOUT_USER)) or (
        scheme not in ("file", "memory") and _SIGNED.search(path_text)
    ):
        raise InvalidRequest(f"the {scheme} URI contains credentials: pass them as storage_options or in the environment")
    if scheme == "file" and authority == "localhost":
        authority = ""
    if scheme == "file" and authority:
        raise InvalidRequest(f"{text!r} contains the host {authority!r}: write a file URI as file:/path or file:///path")
    place = "host" if scheme in ("hdfs", "webhdfs") else "bucket"
    if scheme not in ("file", "memory") and not authority:
        raise InvalidRequest(f"{text!r} contains no {place}: write {scheme}://{place}/path")
    parts = _parts(path_text)
    if ".." in parts or "." in parts:
        raise InvalidRequest(f"{text!r} contains a '.' or '..' part: write the path without it")
    return Location(scheme, authority, "/".join(parts))


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


# Shared by all storages below a URI.


class UriMixin:
    """URI-related methods of a storage at `location`."""

    __slots__ = ("_location",)

    def __init__(self, location: Location) -> None:
        self._location = location

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.uri!r})"

    @property
    def uri(self) -> str:
        return self._location.uri

    def absolute(self, path: str) -> str:
        return self._location.child(check_path(path)).uri


def files_below(folder: str, list_folder: Callable[[str], Listing]) -> Iterator[FileInfo]:
    """Every file below a folder, level by level.  Several listing requests run concurrently."""
    level: tuple[str, ...] = (check_path(folder),)
    while level:
        listings = in_threads(list_folder, level)
        for listing in listings:
            yield from listing.files
        level = tuple(path for listing in listings for path in listing.folders)

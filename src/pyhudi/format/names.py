"""Names of data files and markers: the only place that builds or parses them.

    base file    {file id}_{write token}_{instant}{extension}          extension with its dot: .parquet, .orc, .hfile
    log file     .{file id}_{instant}.log.{version}_{write token}      version from 1
    CDC log      the name of a log file + .cdc
    archive      .commits_.archive.{version}_{write token}             timelines before layout 2
    write token  {task partition}-{stage}-{task attempt}               decimal; distinguishes the retries of a task
    external     {name in storage}_{instant}_hudiext                   base file of another table format, in commits
    bucket       number as eight digits that replace the first eight characters of the file id's UUID; the other characters
                 are zeros if concurrent writers derive one file id for the bucket
    marker       {path of the data file}.marker.{CREATE|MERGE|APPEND}  relative to the instant's marker folder

The instant is the request time of the action that wrote the file, never its completion time. A file id contains neither
`_` nor `.`. Parsing returns None for any other name, except for files that hold rows and are not read, which are
Unsupported: external files (only `parse_external_file` parses them), and native logs of release 1.3
(`{file id}_{write token}_{instant}_{version}.log.parquet`, in tables of the storage layout `lsm_tree`).

Specification: docs/formats/base-file.md; docs/formats/log-file.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.options.index_options import METADATA_TABLE

CDC_SUFFIX = ".cdc"
MARKER_INFIX = ".marker."
EXTERNAL_SUFFIX = "_hudiext"
PARQUET_EXTENSION = ".parquet"
ORC_EXTENSION = ".orc"
BASE_EXTENSIONS = {"PARQUET": PARQUET_EXTENSION, "ORC": ORC_EXTENSION}
"""Supported base file formats, by their value in `hoodie.properties`."""

_FILE_ID = re.compile(r"[^_./\\\s]+")
_TOKEN = re.compile(r"([0-9]{1,19})-([0-9]{1,19})-([0-9]{1,19})")
# A partitioned record index names its file groups after partitions of the table, which contain any characters except
# these.
_SECTIONED = r"record-index-[^_./\\\n]*-[0-9]{4,9}-0"
_BASE = re.compile(rf"([A-Za-z0-9-]+|{_SECTIONED})_([A-Za-z0-9-]+)_([0-9]+)(\.[A-Za-z0-9]+)")
_BASE_GROUPS = (
    rf"\A(?P<file_id>[A-Za-z0-9-]+|{_SECTIONED})_"
    r"(?P<write_token>[A-Za-z0-9-]+)_(?P<instant_time>[0-9]+)(?P<extension>\.[A-Za-z0-9]+)\z"
)
_LOG = re.compile(
    rf"\.([^_./\\\s]+|{_SECTIONED})_"
    r"([0-9]+)\.log\.(0|[1-9][0-9]{0,8})(?:_([0-9]{1,19}-[0-9]{1,19}-[0-9]{1,19})(\.cdc)?)?"
)
_EXTERNAL = re.compile(rf"([^/\\\n]+)_([0-9]{{1,17}}){EXTERNAL_SUFFIX}")
_EXTERNAL_FOLDER = "_fg%3D"
_NATIVE_LOG_INFIX = ".log."
_NATIVE_LOG = re.compile(r"[^_./\\\s]+_[^_./\\\s]+_[0-9]+_[0-9]+\.log\.[A-Za-z0-9]+")
_ARCHIVE = re.compile(r"\.commits_\.archive\.(0|[1-9][0-9]{0,8})(?:_([0-9]{1,19}-[0-9]{1,19}-[0-9]{1,19}))?")
_BUCKET_DIGITS = 8
_BUCKET = re.compile(rf"([0-9]{{{_BUCKET_DIGITS}}})-")
_NO_UUID = "00000000-0000-0000-0000-000000000000"
_MARKER = re.compile(r"(.*[^/])\.marker\.(CREATE|MERGE|APPEND)", re.DOTALL)


class MarkerType(StrEnum):
    """Operation that a write attempt announces for a file.

    CREATE: a new base file, and every log file since table version 8. MERGE: a base file that replaces one. APPEND: a
    log file that may already exist, before version 8.
    """

    CREATE = "CREATE"
    MERGE = "MERGE"
    APPEND = "APPEND"


@dataclass(frozen=True, slots=True)
class WriteToken:
    """The task attempt that wrote a file.

    Attributes:
        partition: Task partition number, >= 0.
        stage: Stage number, >= 0.
        attempt: Task attempt number, >= 0.
    """

    partition: int
    stage: int
    attempt: int

    def __post_init__(self) -> None:
        if min(self.partition, self.stage, self.attempt) < 0:
            raise InvalidRequest(f"invalid write token with a negative number: {self}")

    @property
    def text(self) -> str:
        return f"{self.partition}-{self.stage}-{self.attempt}"

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class BaseFileName:
    """Name of a base file.

    Attributes:
        file_id: The file group.
        write_token: Text; tokens of other writers need not be three numbers.
        instant_time: Request time.
        extension: With its dot.
    """

    file_id: str
    write_token: str
    instant_time: str
    extension: str

    def __post_init__(self) -> None:
        if not _BASE.fullmatch(self.text):
            raise InvalidRequest(f"invalid base file name: {self.text}")

    @property
    def text(self) -> str:
        return f"{self.file_id}_{self.write_token}_{self.instant_time}{self.extension}"

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class ExternalFileName(BaseFileName):
    """Name in commits of a base file that another table format wrote. The file id is its name in storage."""

    def __post_init__(self) -> None:
        """Accept any name."""

    @property
    def text(self) -> str:
        return f"{self.file_id}_{self.instant_time}{EXTERNAL_SUFFIX}"


@dataclass(frozen=True, slots=True)
class LogFileName:
    """Name of a log file.

    Attributes:
        file_id: The file group.
        instant_time: Request time; before table version 8 that of the base file.
        version: From 1, compared as a number.
        write_token: Empty in names that old writers created.
        is_cdc: True for a CDC log.
    """

    file_id: str
    instant_time: str
    version: int
    write_token: str
    is_cdc: bool = False

    def __post_init__(self) -> None:
        if not _LOG.fullmatch(self.text):
            raise InvalidRequest(f"invalid log file name: {self.text}")

    @property
    def text(self) -> str:
        token = f"_{self.write_token}" if self.write_token else ""
        return f".{self.file_id}_{self.instant_time}.log.{self.version}{token}{CDC_SUFFIX if self.is_cdc else ''}"

    @property
    def sort_key(self) -> tuple[str, int, str, bool]:
        """Sort key within a file slice: instant as text, version as number, token as text, CDC last."""
        return (self.instant_time, self.version, self.write_token, self.is_cdc)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class ArchiveFileName:
    """One file of the archive of a timeline before layout 2; files are read in order of version."""

    version: int
    write_token: str

    @property
    def text(self) -> str:
        return f".commits_.archive.{self.version}" + (f"_{self.write_token}" if self.write_token else "")

    def __str__(self) -> str:
        return self.text


def split_base_files(names: pa.StringArray) -> pa.StructArray:
    """Parse many base file names at once, as `parse_base_file`.

    Returns:
        Structs of file_id, write_token, instant_time and extension; null for any other name, externally created files
        included.
    """
    return pc.extract_regex(names, _BASE_GROUPS)


def check_read(name: str) -> None:
    """Raise Unsupported for the name (no folders) of a file that holds rows of the table and is not read."""
    if name.endswith(EXTERNAL_SUFFIX):
        raise Unsupported(
            "files of another table format (Apache XTable, Delta UniForm) are read only by snapshot queries with "
            f"{METADATA_TABLE}=false; use the table in its original format: {name}"
        )
    if _NATIVE_LOG_INFIX in name and _NATIVE_LOG.fullmatch(name):
        raise Unsupported(f"native log files (release 1.3, storage layout lsm_tree) are not read: {name}")


def is_log_file(name: str) -> bool:
    """Return whether the name (no folders) of a data file is that of a log file. Raises Unsupported as `check_read`."""
    if name.startswith("."):
        return True
    check_read(name)
    return False


def are_log_files(names: pa.StringArray) -> pa.BooleanArray:
    """Return for each name of a data file whether it is a log file, as `is_log_file`."""
    others = names.filter(pc.or_(pc.ends_with(names, EXTERNAL_SUFFIX), pc.match_substring(names, _NATIVE_LOG_INFIX)))
    for name in others.to_pylist():
        is_log_file(name)
    return pc.starts_with(names, ".")


# One operation parses the same names several times.
@lru_cache(maxsize=1 << 12)
def parse_base_file(name: str) -> BaseFileName | None:
    """Return the parts of a base file's name (no folders), or None. Raises Unsupported as `check_read`."""
    check_read(name)
    match = _BASE.fullmatch(name)
    return BaseFileName(match[1], match[2], match[3], match[4]) if match else None


def parse_external_file(name: str) -> ExternalFileName | None:
    """Return the parts of the name of an external file in a commit (no folders); None for another name."""
    match = _EXTERNAL.fullmatch(name)
    if match is None or _EXTERNAL_FOLDER in name:
        return None
    return ExternalFileName(match[1], "", match[2], "." + match[1].rpartition(".")[2])


def is_orc(name: str) -> bool:
    """Return whether a base file is ORC, by its name (with or without folders).

    Raises:
        Unsupported: Neither ORC nor Parquet; the message contains the format.
    """
    stem, dot, extension = name.rpartition(".")
    if not (stem and dot) or f".{extension.lower()}" not in (PARQUET_EXTENSION, ORC_EXTENSION):
        known = {"hfile": "HFile", "lance": "Lance", "vortex": "Vortex"}
        raise Unsupported(
            f"base file format {known.get(extension.lower(), extension)} is not supported, only Parquet and ORC are: {name}"
        )
    return extension.lower() == "orc"


@lru_cache(maxsize=1 << 12)
def parse_log_file(name: str) -> LogFileName | None:
    """Return the parts of a log file's name (no folders), CDC logs included, or None."""
    match = _LOG.fullmatch(name)
    return LogFileName(match[1], match[2], int(match[3]), match[4] or "", match[5] is not None) if match else None


def parse_data_file_instant(name: str) -> str | None:
    """Return the instant in the name of a base or log file; None for another file."""
    parsed = parse_log_file(name) if is_log_file(name) else parse_base_file(name)
    return parsed.instant_time if parsed else None


def parse_data_file_group(name: str) -> str | None:
    """Return the file id in the name of a base or log file; None for another file."""
    parsed = parse_log_file(name) if is_log_file(name) else parse_base_file(name)
    return parsed.file_id if parsed else None


def parse_archive_file(name: str) -> ArchiveFileName | None:
    """Return the parts of an archive file's name (no folders), or None."""
    match = _ARCHIVE.fullmatch(name)
    return ArchiveFileName(int(match[1]), match[2] or "") if match else None


def format_file_id(prefix: str, index: int) -> str:
    """Return a file id: the prefix (a lower-case UUID) and the 0-based number of the file within it."""
    file_id = f"{prefix}-{index}"
    if index < 0 or not _FILE_ID.fullmatch(file_id):
        raise InvalidRequest(f"invalid file id: {file_id}")
    return file_id


def format_bucket_prefix(bucket: int, prefix: str) -> str:
    """Return the file id prefix (a UUID) of a bucket, 0 to 99999999, of the simple bucket index."""
    digits = f"{bucket:0{_BUCKET_DIGITS}d}"
    if bucket < 0 or len(digits) != _BUCKET_DIGITS:
        raise InvalidRequest(f"invalid bucket number: {bucket}")
    return digits + prefix[_BUCKET_DIGITS:]


def format_shared_file_id(bucket: int, index: int) -> str:
    """Return the file id that all concurrent writers of a bucket derive.

    It is the bucket number, and zeros in place of a random UUID.

    Args:
        bucket: Bucket number.
        index: 0, or higher if earlier file groups of the bucket with such ids were replaced.
    """
    return format_file_id(format_bucket_prefix(bucket, _NO_UUID), index)


def is_shared_file_id(file_id: str) -> bool:
    """Return whether a file id was built by `format_shared_file_id`."""
    return file_id[_BUCKET_DIGITS:].startswith(f"{_NO_UUID[_BUCKET_DIGITS:]}-") and parse_bucket(file_id) is not None


def parse_bucket(file_id: str) -> int | None:
    """Return the bucket number in a file id; None if it does not start with eight decimal digits and a hyphen.

    One random UUID in forty starts that way by chance.
    """
    match = _BUCKET.match(file_id)
    return int(match[1]) if match else None


def format_marker(data_path: str, kind: MarkerType) -> str:
    """Return the marker's path below the marker folder of its instant.

    Args:
        data_path: Relative to the table.
    """
    return f"{data_path}{MARKER_INFIX}{kind.value}"


def parse_marker(path: str) -> tuple[str, MarkerType] | None:
    """Return the data file's path and the marker's type, or None.

    Args:
        path: Relative to the marker folder.
    """
    match = _MARKER.fullmatch(path)
    return (match[1], MarkerType(match[2])) if match else None


def decode_marker_list(data: bytes) -> tuple[tuple[str, MarkerType], ...]:
    """Decode the markers of one `MARKERS<i>` file, which a timeline server writes: one relative path a line.

    A last line without its newline is an interrupted write. Its marker may be incomplete and is an error, because a
    rollback that missed it would leave an orphan data file.

    Raises:
        CorruptData: The list is not UTF-8, is truncated, or contains a line that is not a marker.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptData("a marker list is not UTF-8", offset=error.start) from error
    if text and not text.endswith("\n"):
        raise CorruptData("a marker list is truncated inside a line", offset=len(data), expected="\n")
    markers = []
    for line in text.split("\n"):
        if line:
            marker = parse_marker(line)
            if marker is None:
                raise CorruptData("a line of a marker list is not a marker", found=line[:200])
            markers.append(marker)
    return tuple(markers)

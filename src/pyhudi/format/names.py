"""Names of data files and markers, and the values they stand for.

    base file    {file id}_{write token}_{instant}{extension}          extension with its dot: .parquet, .orc, .hfile
    log file     .{file id}_{instant}.log.{version}_{write token}      version from 1
    CDC log      the name of a log file + .cdc
    archive      .commits_.archive.{version}_{write token}             timelines before layout 2
    write token  {task partition}-{stage}-{task attempt}               decimal; it makes the retries of a task differ
    bucket       its number as eight digits in front of a file id, in place of as many characters of the UUID; zeros for the
                 rest of it where several writers make the file id of one bucket
    marker       {path of the data file}.marker.{CREATE|MERGE|APPEND}  relative to the instant's marker folder

The instant is the request time of the action that wrote the file, never its completion time.  A file id holds neither `_`
nor `.`.  This is the only place that builds or splits these names; a name that is not ours is None, except that of an
externally created file (`.._hudiext`): to pass over one would hide its rows, so it is refused.

Source: docs/formats/base-file.md; docs/formats/log-file.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported

CDC_SUFFIX = ".cdc"
MARKER_INFIX = ".marker."
EXTERNAL_SUFFIX = "_hudiext"
PARQUET_EXTENSION = ".parquet"
ORC_EXTENSION = ".orc"
BASE_EXTENSIONS = {"PARQUET": PARQUET_EXTENSION, "ORC": ORC_EXTENSION}
"""The formats of base files that are read and written, by the word in `hoodie.properties`."""

_FILE_ID = re.compile(r"[^_./\\\s]+")
_TOKEN = re.compile(r"([0-9]{1,19})-([0-9]{1,19})-([0-9]{1,19})")
# A partitioned record index names its file groups after partitions of the table, which hold any characters but these.
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
_ARCHIVE = re.compile(r"\.commits_\.archive\.(0|[1-9][0-9]{0,8})(?:_([0-9]{1,19}-[0-9]{1,19}-[0-9]{1,19}))?")
_BUCKET_DIGITS = 8
_BUCKET = re.compile(rf"([0-9]{{{_BUCKET_DIGITS}}})-")
_NO_UUID = "00000000-0000-0000-0000-000000000000"
_MARKER = re.compile(r"(.*[^/])\.marker\.(CREATE|MERGE|APPEND)", re.DOTALL)


class MarkerType(StrEnum):
    """What the write attempt was about to do with the file.

    CREATE: a new base file, and every log file since table version 8.  MERGE: a base file that replaces one.
    APPEND: a log file that may exist already, before version 8.
    """

    CREATE = "CREATE"
    MERGE = "MERGE"
    APPEND = "APPEND"


@dataclass(frozen=True, slots=True)
class WriteToken:
    """Which attempt of which task wrote a file: task partition number, stage number, task attempt number, all >= 0."""

    partition: int
    stage: int
    attempt: int

    def __post_init__(self) -> None:
        if min(self.partition, self.stage, self.attempt) < 0:
            raise InvalidRequest(f"A write token has no negative numbers: {self}")

    @property
    def text(self) -> str:
        return f"{self.partition}-{self.stage}-{self.attempt}"

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class BaseFileName:
    """file_id: the file group; write_token: text, other writers' need not be three numbers; extension: with its dot."""

    file_id: str
    write_token: str
    instant_time: str
    extension: str

    def __post_init__(self) -> None:
        if not _BASE.fullmatch(self.text):
            raise InvalidRequest(f"This is not a base file name: {self.text}")

    @property
    def text(self) -> str:
        return f"{self.file_id}_{self.write_token}_{self.instant_time}{self.extension}"

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class LogFileName:
    """version: from 1, told apart as a number; write_token: empty in names that old writers gave."""

    file_id: str
    instant_time: str
    version: int
    write_token: str
    is_cdc: bool = False

    def __post_init__(self) -> None:
        if not _LOG.fullmatch(self.text):
            raise InvalidRequest(f"This is not a log file name: {self.text}")

    @property
    def text(self) -> str:
        token = f"_{self.write_token}" if self.write_token else ""
        return f".{self.file_id}_{self.instant_time}.log.{self.version}{token}{CDC_SUFFIX if self.is_cdc else ''}"

    @property
    def sort_key(self) -> tuple[str, int, str, bool]:
        """The order of log files in a slice: instant as text, version as number, token as text, CDC last."""
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
    """file_id, write_token, instant_time and extension of each base file name; null for a name of another form.

    As `parse_base_file`, for very many names; externally created files are of another form here.
    """
    return pc.extract_regex(names, _BASE_GROUPS)


def parse_base_file(name: str) -> BaseFileName | None:
    """The parts of a base file's name (no folders), or None.  Raises Unsupported for an externally created file."""
    if name.endswith(EXTERNAL_SUFFIX):
        raise Unsupported(f"Externally created files are not read: {name}")
    match = _BASE.fullmatch(name)
    return BaseFileName(match[1], match[2], match[3], match[4]) if match else None


def is_orc(name: str) -> bool:
    """Whether a base file is ORC by its name (with or without folders).  Raises Unsupported, naming the format, for one that is
    neither this nor Parquet.
    """
    stem, dot, extension = name.rpartition(".")
    if not (stem and dot) or f".{extension.lower()}" not in (PARQUET_EXTENSION, ORC_EXTENSION):
        known = {"hfile": "HFile", "lance": "Lance", "vortex": "Vortex"}
        raise Unsupported(
            f"base files of the format {known.get(extension.lower(), extension)} are not read, only Parquet and ORC: {name}"
        )
    return extension.lower() == "orc"


def parse_log_file(name: str) -> LogFileName | None:
    """The parts of a log file's name (no folders), CDC logs included, or None."""
    match = _LOG.fullmatch(name)
    return LogFileName(match[1], match[2], int(match[3]), match[4] or "", match[5] is not None) if match else None


def parse_data_file_instant(name: str) -> str | None:
    """The instant in the name of a base or log file; None for another file."""
    found = parse_log_file(name) if name.startswith(".") else parse_base_file(name)
    return found.instant_time if found else None


def parse_data_file_group(name: str) -> str | None:
    """The file id in the name of a base or log file; None for another file."""
    found = parse_log_file(name) if name.startswith(".") else parse_base_file(name)
    return found.file_id if found else None


def parse_archive_file(name: str) -> ArchiveFileName | None:
    """The parts of an archive file's name (no folders), or None."""
    match = _ARCHIVE.fullmatch(name)
    return ArchiveFileName(int(match[1]), match[2] or "") if match else None


def format_file_id(prefix: str, index: int) -> str:
    """A file group id: the prefix (a UUID of lower case) and the 0-based number of the file within it."""
    file_id = f"{prefix}-{index}"
    if index < 0 or not _FILE_ID.fullmatch(file_id):
        raise InvalidRequest(f"This is not a file id: {file_id}")
    return file_id


def format_bucket_prefix(bucket: int, prefix: str) -> str:
    """The prefix (a UUID) of the file ids of a bucket, 0 to 99999999, of the simple bucket index."""
    digits = f"{bucket:0{_BUCKET_DIGITS}d}"
    if bucket < 0 or len(digits) != _BUCKET_DIGITS:
        raise InvalidRequest(f"This is not a bucket number: {bucket}")
    return digits + prefix[_BUCKET_DIGITS:]


def format_shared_file_id(bucket: int, index: int) -> str:
    """The file id of a bucket that all writers make who append to it at once: the bucket's number, and zeros for a random tail.

    index: 0 but for a bucket whose earlier file groups of such ids were replaced.
    """
    return format_file_id(format_bucket_prefix(bucket, _NO_UUID), index)


def is_shared_file_id(file_id: str) -> bool:
    """Whether a file id is one of `format_shared_file_id`."""
    return file_id[_BUCKET_DIGITS:].startswith(f"{_NO_UUID[_BUCKET_DIGITS:]}-") and parse_bucket(file_id) is not None


def parse_bucket(file_id: str) -> int | None:
    """The bucket that a file id names; None when it does not begin with eight decimal digits and a hyphen.

    One UUID in forty begins so by chance.
    """
    match = _BUCKET.match(file_id)
    return int(match[1]) if match else None


def format_marker(data_path: str, kind: MarkerType) -> str:
    """The marker's path below the marker folder of its instant; data_path: relative to the table."""
    return f"{data_path}{MARKER_INFIX}{kind.value}"


def parse_marker(path: str) -> tuple[str, MarkerType] | None:
    """The data file's path and the marker's type; path: relative to the marker folder.  None when it is not a marker."""
    match = _MARKER.fullmatch(path)
    return (match[1], MarkerType(match[2])) if match else None


def decode_marker_list(data: bytes) -> tuple[tuple[str, MarkerType], ...]:
    """The markers of one `MARKERS<i>` file, which a timeline server writes: one relative path a line.

    A last line without its newline is a write that was cut off; its marker may be incomplete and is an error, because a
    rollback that did not see it would leave the data file behind.  Raises CorruptData.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptData("a marker list is not UTF-8", offset=error.start) from error
    if text and not text.endswith("\n"):
        raise CorruptData("a marker list ends inside a line", offset=len(data), expected="\n")
    markers = []
    for line in text.split("\n"):
        if line:
            marker = parse_marker(line)
            if marker is None:
                raise CorruptData("a line of a marker list is not a marker", found=line[:200])
            markers.append(marker)
    return tuple(markers)

"""LSM timeline of timeline layout 2: archived instants as Parquet files listed by a manifest.

    _version_                       the number of the current manifest, decimal, no newline
    manifest_<n>                    JSON: the files of the snapshot, n from 1; immutable once written
    <min>_<max>_<level>.parquet     rows; min and max are request times of the first and last row, level is one digit

A reader uses the manifest named by the version file. If that manifest is missing or unreadable, it uses the highest
existing one; if none exists, the history is empty. A Parquet file that no manifest lists is an orphan or not finished.
Rows need not be sorted and min may be greater than max, so a file may be skipped only by an overlap test that accepts
both orders.

    row: instantTime, completionTime, action: string; metadata, plan: binary; version: int32, never null

`action` is the completed action. `metadata` holds the bytes of the completed file, `plan` those of the requested file;
each is null if there is no such file. `actions/archived_instants.py` decodes them. Not done here: opening or compacting
the files.

Specification: docs/formats/timeline.md, "History".
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from pyhudi.errors import CorruptData, InvalidRequest
from pyhudi.format.avro.nodes import BYTES, INT, STRING, optional, record, required
from pyhudi.format.avro.schema import Schema, schema_from_record
from pyhudi.format.json_document import parse_json
from pyhudi.format.parquet.parquet_file import ParquetWriter
from pyhudi.format.stored_numbers import parse_digits

VERSION_FILE: Final = "_version_"
MAX_LEVEL: Final = 9
HISTORY_SCHEMA: Final = pa.schema(
    [
        pa.field("instantTime", pa.string()),
        pa.field("completionTime", pa.string()),
        pa.field("action", pa.string()),
        pa.field("metadata", pa.binary()),
        pa.field("plan", pa.binary()),
        pa.field("version", pa.int32(), nullable=False),
    ]
)

_MANIFEST = re.compile(r"manifest_([1-9][0-9]{0,17})")
_FILE = re.compile(r"([0-9]{1,40})_([0-9]{1,40})_([0-9])\.parquet")


@dataclass(frozen=True, slots=True)
class HistoryFileName:
    """Name of a Parquet file of the LSM timeline.

    Attributes:
        min_time: Request time of the first row.
        max_time: Request time of the last row.
        level: 0 to 9; a compaction of files increments it.
    """

    min_time: str
    max_time: str
    level: int

    def __post_init__(self) -> None:
        if not _FILE.fullmatch(self.text):
            raise InvalidRequest(f"invalid name of a history file: {self.text}")

    @property
    def text(self) -> str:
        return f"{self.min_time}_{self.max_time}_{self.level}.parquet"

    def may_contain(self, first: str | None, last: str | None) -> bool:
        """Return whether the file may contain rows with first <= request time <= last; None means no bound."""
        low, high = min(self.min_time, self.max_time), max(self.min_time, self.max_time)
        return (last is None or low <= last) and (first is None or high >= first)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One file of the history and its size."""

    file_name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """Files of the history, in the order of the manifest."""

    files: tuple[ManifestEntry, ...] = ()

    def encode(self) -> bytes:
        """Return the JSON file."""
        if not self.files:
            return b'{\n  "files" : [ ]\n}'
        entries = ", ".join(
            f'{{\n    "fileName" : {json.dumps(entry.file_name)},\n    "fileLen" : {entry.size_bytes}\n  }}'
            for entry in self.files
        )
        return f'{{\n  "files" : [ {entries} ]\n}}'.encode()

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """Decode JSON in any layout; unknown keys are ignored. Raises CorruptData."""
        document = parse_json(data, "a manifest of the history is")
        files = document.get("files") if isinstance(document, dict) else None
        if not isinstance(files, list):
            raise CorruptData("a manifest of the history has no list of files")
        return cls(tuple(_decode_entry(entry) for entry in files))


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One archived instant.

    Attributes:
        instant_time: Request time.
        completion_time: None if unknown.
        action: Name of the completed action.
        metadata: Bytes of the completed file; None without one.
        plan: Bytes of the requested file; None without one.
        version: Layout version of the row.
    """

    instant_time: str
    completion_time: str | None
    action: str
    metadata: bytes | None = None
    plan: bytes | None = None
    version: int = 1


def format_manifest_name(number: int) -> str:
    """Return the file name of manifest `number`, from 1."""
    return f"manifest_{number}"


def parse_manifest_name(name: str) -> int | None:
    """Return the number of a manifest; None for another file."""
    match = _MANIFEST.fullmatch(name)
    return int(match[1]) if match else None


def parse_history_file(name: str) -> HistoryFileName | None:
    """Return the parts of a history file's name; None for another file."""
    match = _FILE.fullmatch(name)
    return HistoryFileName(match[1], match[2], int(match[3])) if match else None


def encode_version(number: int) -> bytes:
    """Return the content of the version file."""
    return str(number).encode()


def parse_version(data: bytes) -> int | None:
    """Return the manifest number in the version file.

    Returns:
        None if it is unreadable; the highest existing manifest then applies.
    """
    return parse_digits(data.strip().decode("latin-1"))


def encode_history(rows: Sequence[HistoryRow], compression: str = "gzip") -> bytes:
    """Encode `rows`, in their order, as a history file.

    Args:
        rows: The archived instants.
        compression: A codec name of Parquet.
    """
    sink = io.BytesIO()
    writer = ParquetWriter(sink, HISTORY_SCHEMA, compression=compression)
    writer.write_table(history_table(rows))
    writer.close(history_footer())
    return sink.getvalue()


def history_footer() -> dict[str, str]:
    """Return the footer entries that Hudi's writer adds, so that Hudi's reader resolves the rows as it does its own."""
    return {"parquet.avro.schema": ROW_SCHEMA.text, "writer.model.name": "avro"}


def history_table(rows: Sequence[HistoryRow]) -> pa.Table:
    """Return the rows as a table of HISTORY_SCHEMA."""
    columns = [
        pa.array([row.instant_time for row in rows], pa.string()),
        pa.array([row.completion_time for row in rows], pa.string()),
        pa.array([row.action for row in rows], pa.string()),
        pa.array([row.metadata for row in rows], pa.binary()),
        pa.array([row.plan for row in rows], pa.binary()),
        pa.array([row.version for row in rows], pa.int32()),
    ]
    return pa.Table.from_arrays(columns, schema=HISTORY_SCHEMA)


def history_rows(batch: pa.RecordBatch | pa.Table) -> Iterator[HistoryRow]:
    """Yield the rows of a batch. The columns metadata, plan and version may be missing.

    Raises:
        CorruptData: A row without an instant time or action.
    """
    names = set(batch.schema.names)
    if not {"instantTime", "action"} <= names:
        raise CorruptData(
            "a history file is missing a column", expected="instantTime, action", found=", ".join(sorted(names))[:200]
        )
    for row in batch.select([name for name in HISTORY_SCHEMA.names if name in names]).to_pylist():
        instant_time, action = row["instantTime"], row["action"]
        if not isinstance(instant_time, str) or not isinstance(action, str):
            raise CorruptData("a row of the history has no instant time or action", found=str(instant_time)[:100])
        completion_time, metadata, plan = row.get("completionTime"), row.get("metadata"), row.get("plan")
        version = row.get("version")
        yield HistoryRow(instant_time, completion_time, action, metadata, plan, 1 if version is None else version)


def _decode_entry(entry: object) -> ManifestEntry:
    name = entry.get("fileName") if isinstance(entry, dict) else None
    size = entry.get("fileLen") if isinstance(entry, dict) else None
    if not isinstance(name, str) or parse_history_file(name) is None:
        raise CorruptData("a manifest of the history lists an invalid file name", found=str(name)[:200])
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise CorruptData("a manifest of the history has a file without a size", found=str(size)[:100])
    return ManifestEntry(name, size)


ROW_SCHEMA: Final[Schema] = schema_from_record(
    record(
        "HoodieLSMTimelineInstant",
        HistoryRow,
        instantTime=optional(STRING),
        completionTime=optional(STRING),
        action=optional(STRING),
        metadata=optional(BYTES),
        plan=optional(BYTES),
        version=required(INT, 1),
    )
)
"""Avro schema of a row, stored in the footer of a history file."""

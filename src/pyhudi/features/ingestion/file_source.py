"""Files that appear in a folder or bucket.

order = "modified": the checkpoint is the largest modification time in milliseconds, as that of Hudi's DFSPathSelector. All
files of one time are in one batch. Files younger than `settle_seconds` are left to a later read, so that a file that
appears at the time of the checkpoint is not missed.

order = "name": the checkpoint is the path of the last file. For files whose names increase, such as those below dated
folders; modification times have no meaning.

Names that begin with `.` or `_`, and empty files, are skipped, as in Hudi.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import partial
from typing import Any

import pyarrow as pa

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.features.ingestion.file_formats import (
    FORMATS,
    OpenFiles,
    find_format,
    open_avro,
    open_csv,
    open_json,
    open_parquet,
    unify_csv,
)
from pyhudi.features.ingestion.row_checks import unified
from pyhudi.features.ingestion.source_protocol import Batch, Limit, ReadContext
from pyhudi.storage import open_storage
from pyhudi.storage.base import FileInfo, Storage
from pyhudi.storage.environment import Environment, SystemEnvironment

_ORDERS = ("modified", "name")


@dataclass(frozen=True, slots=True)
class FileSource:
    """Files of a folder, each read once.

    Attributes:
        path: Folder, with all of its subfolders.
        format: parquet, json, csv or avro; None decides by the ending of each file's name.
        order: modified or name.
        pattern: Shell pattern of the path below the folder, such as `2026-*/*.csv`.
        settle_seconds: Age from which a file is read, if ordered by modification time.
        storage_options: Credentials and settings of the store.
        delimiter: Delimiter of CSV files.
        columns: Columns of CSV files without a header line.
        environment: Clock.
    """

    path: str
    format: str | None = None
    order: str = "modified"
    pattern: str | None = None
    settle_seconds: float = 2
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    delimiter: str = ","
    columns: tuple[str, ...] = ()
    environment: Environment = field(default_factory=SystemEnvironment)

    def __post_init__(self) -> None:
        if self.order not in _ORDERS:
            raise InvalidRequest(f"source files has order={self.order!r}: choose from {', '.join(_ORDERS)}")
        if self.format is not None and self.format not in FORMATS:
            raise InvalidRequest(f"source files has format={self.format!r}: choose from {', '.join(FORMATS)}")
        if len(self.delimiter) != 1 or self.settle_seconds < 0:
            raise InvalidRequest("source files takes a delimiter of one character, and settle_seconds of 0 or more")

    def read(self, checkpoint: str | None, limit: Limit) -> Batch | None:
        """Return the files after a checkpoint; None if there are none."""
        if limit.rows is not None:
            raise Unsupported("source files reads whole files, whose rows are not known before: set max_bytes, not max_rows")
        after = self._parse(checkpoint)
        files = self._new_files(after)
        if not files:
            return None
        chosen = self._limited(files, limit)
        rest = files[len(chosen) :]
        return Batch(
            Files(self, tuple(file.path for file in chosen)),
            str(self._position(chosen[-1])),
            *({"files": len(files), "bytes": sum(file.size_bytes for file in files)} for files in (rest, chosen)),
        )

    def _parse(self, checkpoint: str | None) -> Any:
        if checkpoint is None or self.order == "name":
            return checkpoint
        try:
            return int(checkpoint)
        except ValueError as error:
            raise InvalidRequest(
                f"checkpoint {checkpoint!r} is no modification time in milliseconds: another source type wrote it, or order "
                "was name; set checkpoint in the job to begin elsewhere"
            ) from error

    def _position(self, file: FileInfo) -> Any:
        return file.path if self.order == "name" else file.modified_ms

    def _new_files(self, after: Any) -> list[FileInfo]:
        files, youngest_ms = self._settled_files(after)
        if files or youngest_ms is None:
            return files
        # The files there are are too young: wait once, so that a job that runs once reads them.
        wait_ms = youngest_ms + self._settle_ms - self.environment.now_ms()
        self.environment.sleep_ms(min(max(wait_ms, 0), self._settle_ms) + 1)
        return self._settled_files(after)[0]

    @property
    def _settle_ms(self) -> int:
        return int(self.settle_seconds * 1000) if self.order == "modified" else 0

    def _settled_files(self, after: Any) -> tuple[list[FileInfo], int | None]:
        """New files in order, and the time of the youngest one that is too young, if any."""
        newest_ms = self.environment.now_ms() - self._settle_ms
        settled, youngest_ms = [], None
        for file in self._listed():
            if after is not None and self._position(file) <= after:
                continue
            if self._settle_ms and file.modified_ms > newest_ms:
                youngest_ms = max(youngest_ms or 0, file.modified_ms)
            else:
                settled.append(file)
        return sorted(settled, key=lambda file: (self._position(file), file.path)), youngest_ms

    def _listed(self) -> Iterator[FileInfo]:
        for file in open_storage(self.path, self.storage_options).walk(""):
            hidden = file.name.startswith((".", "_")) or not file.size_bytes
            if not hidden and (self.pattern is None or fnmatch(file.path, self.pattern)):
                yield file

    def _limited(self, files: list[FileInfo], limit: Limit) -> list[FileInfo]:
        """The first files up to the limit, at least one, and with it all of its time."""
        chosen: list[FileInfo] = []
        size_bytes = 0
        for file in files:
            size_bytes += file.size_bytes
            full = limit.size_bytes is not None and size_bytes > limit.size_bytes
            if chosen and full and self._position(file) != self._position(chosen[-1]):
                break
            chosen.append(file)
        return chosen


@dataclass(frozen=True, slots=True)
class Files:
    """Opens files of a source as a stream.

    Attributes:
        source: The source.
        paths: Files, relative to its folder.
    """

    source: FileSource
    paths: tuple[str, ...]

    @property
    def storage(self) -> Storage:
        """The folder."""
        return open_storage(self.source.path, self.source.storage_options)

    @property
    def format(self) -> str:
        """The format of all files. Raises InvalidRequest for unknown formats, and if there are several."""
        formats = {path: self.source.format or find_format(path) for path in self.paths}
        unknown = next((path for path, name in formats.items() if name is None), None)
        if unknown is not None:
            raise InvalidRequest(f"{self.storage.absolute(unknown)} has an unknown format: set format of the source, or pattern")
        names = sorted({name for name in formats.values() if name is not None})
        if len(names) > 1:
            raise InvalidRequest(f"{self.storage.uri} has files of the formats {' and '.join(names)}: set pattern to choose one")
        return names[0]

    def unified(self, schemas: Sequence[pa.Schema]) -> pa.Schema:
        """Return the schema of all files from that of each one."""
        return (unify_csv if self.format == "csv" else unified)(schemas)

    def __call__(self, context: ReadContext) -> pa.RecordBatchReader:
        openers: Mapping[str, OpenFiles] = {
            "parquet": open_parquet,
            "json": open_json,
            "csv": partial(open_csv, delimiter=self.source.delimiter, columns=self.source.columns),
            "avro": open_avro,
        }
        return openers[self.format](self.storage, self.paths, context)

"""Read the bytes of BLOB values: inline ones from the column, others from ranges of files outside of the table.

Only files below the allowed roots are read. Ranges of one file that are close to each other are read with one request.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest, TableState, Unsupported
from pyhudi.format.avro_columns.buffers import gather_ranges
from pyhudi.format.hudi_types import BLOB_TYPE, INLINE, OUT_OF_LINE
from pyhudi.options.read_options import BLOB_ROOTS
from pyhudi.records.schema_cast import conform
from pyhudi.records.type_normalization import fits_record, takes_record
from pyhudi.storage import Storage, open_storage
from pyhudi.storage.uris import Location, parse_uri

_GAP_BYTES: Final = 64 << 10
_REQUEST_BYTES: Final = 16 << 20
"""Ranges of a file are joined to one request if their gaps are at most the first, and the request at most the second."""

_MOST_BYTES: Final = (1 << 31) - 1
"""Limit on the bytes of one result array."""

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Root:
    location: Location
    storage: Storage


class BlobReader:
    """Reader of BLOB values below some roots."""

    def __init__(self, roots: str | None, storage_options: Mapping[str, str] | None) -> None:
        """Open the roots; this accesses no file.

        Args:
            roots: Folders, separated by commas, whose files may be read.
            storage_options: Credentials and settings of their object stores.

        Raises:
            InvalidRequest: A root is malformed or relative.
        """
        self._roots: list[_Root] = []
        for text in (roots or "").split(","):
            if text.strip():
                location = _resolved(text.strip(), "the root")
                options = storage_options if location.scheme not in ("file", "memory") else None
                self._roots.append(_Root(location, open_storage(location.uri, options)))

    def read(self, blobs: pa.Array | pa.ChunkedArray, offset: int = 0, length: int | None = None) -> pa.ChunkedArray:
        """See `Table.read_blobs`."""
        if offset < 0 or (length is not None and length < 0):
            raise InvalidRequest(f"read_blobs: offset and length must be 0 or more, not {offset} and {length}")
        chunks = blobs.chunks if isinstance(blobs, pa.ChunkedArray) else [blobs]
        results: list[pa.Array] = []
        first = 0
        for chunk in chunks:
            values = _as_blobs(chunk)
            results.extend(self._read(values, first, offset, length))
            first += len(values)
        return pa.chunked_array(results, pa.binary())

    def _read(self, blobs: pa.Array, first: int, offset: int, length: int | None) -> Iterator[pa.Array]:
        kinds = pc.struct_field(blobs, "type")
        data, reference = pc.struct_field(blobs, "data"), pc.struct_field(blobs, "reference")
        is_outside = np.asarray(pc.fill_null(pc.equal(kinds, OUT_OF_LINE), False), dtype=np.bool_)
        known = pc.is_in(kinds, pa.array([INLINE, OUT_OF_LINE, None]))
        unknown = pc.index(known, value=False).as_py()
        if unknown >= 0:
            raise InvalidRequest(f"row {first + unknown}: the BLOB has the type {kinds[unknown]}, not {INLINE} or {OUT_OF_LINE}")
        lacking = np.flatnonzero(is_outside & ~np.asarray(reference.is_valid(), dtype=np.bool_))
        if len(lacking):
            raise InvalidRequest(f"row {first + int(lacking[0])}: the BLOB is {OUT_OF_LINE} and has no reference")
        inline = pc.if_else(pa.array(is_outside), pa.scalar(None, pa.binary()), data)
        if offset or length is not None:
            inline = _sliced(inline, offset, length)
        if not is_outside.any():
            yield inline
            return
        rows = np.flatnonzero(is_outside)
        ranges = self._ranges(reference.take(pa.array(rows)), first + rows, offset, length)
        # One array has at most 2 GiB.
        sizes = np.asarray(pc.fill_null(pc.binary_length(inline), 0), dtype=np.int64)
        sizes[rows] = ranges.lengths
        for start, end in _groups(sizes):
            chosen = (rows >= start) & (rows < end)
            fetched = ranges.fetch(np.flatnonzero(chosen))
            part, inside = inline.slice(start, end - start), is_outside[start:end]
            positions = pa.array(np.where(inside, np.cumsum(inside) - 1, 0), pa.int64(), mask=~inside)
            yield pc.coalesce(fetched.take(positions), part)

    def _ranges(self, reference: pa.Array, rows: Longs, offset: int, length: int | None) -> _Ranges:
        paths = pc.struct_field(reference, "external_path").dictionary_encode()
        files = [self._file(text, rows[pc.index(paths.indices, number).as_py()]) for number, text in _numbered(paths)]
        numbers = np.asarray(paths.indices, dtype=np.int64)
        ends = np.array([file.size for file in files], np.int64)[numbers]
        offsets, lengths = pc.struct_field(reference, "offset"), pc.struct_field(reference, "length")
        half = pc.index(pc.not_equal(offsets.is_null(), lengths.is_null()), True).as_py()
        if half >= 0:
            raise InvalidRequest(
                f"row {rows[half]}: the BLOB's reference must set both offset and length, or neither, as in Hudi"
            )
        starts = np.asarray(pc.fill_null(offsets, 0), dtype=np.int64)
        whole = np.asarray(lengths.is_null(), dtype=np.bool_)
        sizes = np.where(whole, ends - starts, np.asarray(pc.fill_null(lengths, 0), dtype=np.int64))
        wrong = np.flatnonzero((starts < 0) | (sizes < 0) | (starts > ends) | (sizes > ends - starts))
        if len(wrong):
            row = int(wrong[0])
            raise TableState(
                f"row {rows[row]}: the BLOB refers to {lengths[row].as_py()} bytes at {starts[row]} of "
                f"{files[numbers[row]].uri}, which has {ends[row]} bytes"
            )
        skipped = np.minimum(offset, sizes)
        rest = sizes - skipped
        return _Ranges(files, numbers, starts + skipped, rest if length is None else np.minimum(rest, length))

    def _file(self, text: str, row: int) -> _File:
        location = _resolved(text, f"row {row}: the BLOB's path")
        for root in self._roots:
            below = _below(location, root.location)
            if below is not None:
                info = root.storage.stat(below)
                if info is None:
                    raise TableState(f"row {row}: the BLOB refers to {location.uri}, which does not exist")
                return _File(root.storage, below, info.size_bytes, location.uri)
        allowed = ", ".join(root.location.uri for root in self._roots) or "none"
        raise Unsupported(
            f"row {row}: the BLOB refers to {location.uri}, which is outside of the allowed roots: {allowed}. Name its folder in "
            f"the option {BLOB_ROOTS}"
        )


@dataclass(frozen=True, slots=True)
class _File:
    storage: Storage
    path: str
    size: int
    uri: str


@dataclass(frozen=True, slots=True)
class _Ranges:
    """Ranges of files, one for each row that is not inline.

    Attributes:
        files: The files.
        numbers: The file of each row.
        starts: Position of its first byte.
        lengths: Number of its bytes.
    """

    files: list[_File]
    numbers: Longs
    starts: Longs
    lengths: Longs

    def fetch(self, rows: Longs) -> pa.Array:
        """Read the bytes of some rows, in their order."""
        order = rows[np.lexsort((self.starts[rows], self.numbers[rows]))]
        contents: list[bytes] = []
        places = np.empty(len(rows), np.int64)
        place = at = 0
        while at < len(order):
            at, place = self._request(order, at, contents, places, place)
        # Where each row's bytes are, in the order of `rows`.
        where = np.empty(len(self.starts), np.int64)
        where[order] = places
        return gather_ranges(pa.py_buffer(b"".join(contents)), where[rows], self.lengths[rows])

    def _request(self, order: Longs, first: int, contents: list[bytes], places: Longs, place: int) -> tuple[int, int]:
        """Read the ranges from position `first` on that one request covers; return the next position and place."""
        number, start = int(self.numbers[order[first]]), int(self.starts[order[first]])
        end, last = start, first
        while last < len(order) and self.numbers[order[last]] == number:
            begins, ends = int(self.starts[order[last]]), int(self.starts[order[last]] + self.lengths[order[last]])
            if last > first and (begins > end + _GAP_BYTES or max(end, ends) - start > _REQUEST_BYTES):
                break
            end = max(end, ends)
            last += 1
        file = self.files[number]
        content = file.storage.read_range(file.path, start, end - start) if end > start else b""
        if len(content) != end - start:
            raise TableState(f"{file.uri} has become shorter than {end} bytes while a BLOB was read from it")
        contents.append(content)
        places[first:last] = place + self.starts[order[first:last]] - start
        return last, place + len(content)


def _sliced(values: pa.Array, offset: int, length: int | None) -> pa.Array:
    """Return a part of each value. (Arrow's `binary_slice` fails for values shorter than the offset.)"""
    sizes = np.asarray(pc.fill_null(pc.binary_length(values), 0), dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    skipped = np.minimum(offset, sizes)
    rest = sizes - skipped if length is None else np.minimum(sizes - skipped, length)
    content = pa.concat_arrays([pc.fill_null(values, b"")]).buffers()[2]
    parts = gather_ranges(content or pa.py_buffer(b""), starts + skipped, rest)
    return pc.if_else(values.is_valid(), parts, pa.scalar(None, pa.binary()))


def _groups(sizes: Longs) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows whose bytes fit one array."""
    largest = int(sizes.max())
    if largest > _MOST_BYTES:
        raise Unsupported(f"a BLOB of {largest} bytes: read it range by range, with offset= and length=")
    start, total = 0, 0
    totals = np.cumsum(sizes)
    while start < len(sizes):
        end = int(np.searchsorted(totals, total + _MOST_BYTES, side="right"))
        yield start, end
        start, total = end, int(totals[end - 1])


def _numbered(paths: pa.DictionaryArray) -> Iterator[tuple[int, str]]:
    return enumerate(paths.dictionary.to_pylist())


def _as_blobs(array: pa.Array) -> pa.Array:
    if not fits_record(array.type, BLOB_TYPE) or pa.types.is_null(array.type):
        raise InvalidRequest(f"read_blobs: {takes_record('BLOB', BLOB_TYPE)}, not {array.type}. Pass a column of a scan")
    field = pa.field("blob", BLOB_TYPE)
    return conform(pa.RecordBatch.from_arrays([array], names=["blob"]), pa.schema([field])).column(0)


def _resolved(text: str, what: str) -> Location:
    """Return a location whose links and parts '..' are resolved."""
    try:
        location = parse_uri(text)
        if location.scheme == "file" and not (text.startswith("file:") or os.path.isabs(text)):
            raise InvalidRequest("it is relative: write the whole path")
    except InvalidRequest as error:
        raise InvalidRequest(f"{what} {text!r}: {error}") from error
    return parse_uri(os.path.realpath(location.file_path)) if location.scheme == "file" else location


def _below(location: Location, root: Location) -> str | None:
    """Return a path relative to a root; None if it is not below it."""
    whole, folder = location.key, root.key.rstrip("/") + "/"
    return whole[len(folder) :] if whole.startswith(folder) else None


def blobs_of(values: Any) -> pa.Array | pa.ChunkedArray:
    """Return the argument of `Table.read_blobs` as an Arrow array."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    try:
        return pa.array(values, BLOB_TYPE)
    except (pa.ArrowException, TypeError, AttributeError) as error:
        raise InvalidRequest(f"read_blobs: pass a column of type BLOB, such as scan().to_arrow()['picture']: {error}") from error

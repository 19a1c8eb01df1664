"""Page-level reads: decode only some pages of a column of a Parquet file.

A row group has one size for all columns, and its pages hold some 20,000 rows each. If few rows are needed, or if the
bounds in the page headers prune most of them, only the pages with needed rows are decompressed and decoded:

    1. the column's bytes are read from the file, and its page headers parsed
    2. the selected pages become, unchanged, a column of a Parquet file in memory, which Arrow reads

Arrow verifies the checksums of these pages; corruption in skipped pages is not detected, as for skipped row groups.
Columns that qualify: neither nested nor repeated, of types that the footer built here can declare, with a codec that
Arrow supports. Arrow reads every other column.

Specification: parquet-format, parquet.thrift, "PageHeader" and "Statistics".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pyhudi.errors import CorruptData
from pyhudi.format.parquet.memory_file import DATA, DATA_V2, DICTIONARY, INDEX, PAGE_HEADERS, MemoryColumn, memory_file
from pyhudi.format.parquet.thrift_compact import Numbers, read_numbers

PAGE_ROWS: Final = 20_000
"""Maximum rows of a page by the defaults of Arrow and Hudi."""

_LEAST_PAGES: Final = 2
_STATISTICS: Final = {DATA: 5, DATA_V2: 8}
"""Header field with the bounds, for each page type."""
_CODECS: Final = {"UNCOMPRESSED": 0, "SNAPPY": 1, "GZIP": 2, "BROTLI": 4, "ZSTD": 6}
_PHYSICAL: Final = {"BOOLEAN": 0, "INT32": 1, "INT64": 2, "FLOAT": 4, "DOUBLE": 5, "BYTE_ARRAY": 6, "FIXED_LEN_BYTE_ARRAY": 7}
_CONVERTED: Final = {"NONE": None, "UTF8": 0, "DECIMAL": 5, "DATE": 6, "TIMESTAMP_MILLIS": 9, "TIMESTAMP_MICROS": 10}
_NUMBERS: Final = {"INT32": struct.Struct("<i"), "INT64": struct.Struct("<q")}


@dataclass(frozen=True, slots=True)
class PageBounds:
    """Minimum and maximum of a page's values, encoded as in a footer's statistics."""

    least: int | bytes
    greatest: int | bytes


@dataclass(frozen=True, slots=True)
class ColumnPages:
    """Pages of a column of one row group.

    No checksum protects a page header, and a bound with one flipped bit would hide rows. Bounds are therefore used only
    if values ascend from page to page. A page is then assumed to range from the maximum of the previous page to the
    minimum of the next one, and the outermost pages to the bounds in the footer. If any one of them is wrong, either
    the order is broken or no row is lost.

    Attributes:
        leaf: The column in the schema.
        codec: Compression.
        first_rows: Row number in the row group of each page's first row, and at the end the number of rows.
        bounds: Bounds of each page; None if they cannot be trusted.
        pages: Bytes of each page, header included, and its uncompressed size.
        dictionary: The same for the dictionary page; None without one.
    """

    leaf: Any
    codec: int
    first_rows: npt.NDArray[np.int64]
    bounds: tuple[PageBounds, ...] | None
    pages: tuple[tuple[memoryview, int], ...]
    dictionary: tuple[memoryview, int] | None

    def pages_containing(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the pages that contain some rows, which are in order."""
        return np.unique(np.searchsorted(self.first_rows, rows, side="right") - 1)

    def positions_in_pages(self, chosen: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the positions of rows among those of the chosen pages, which contain them."""
        counts = np.diff(self.first_rows)[chosen]
        starts = np.cumsum(counts) - counts
        page = np.searchsorted(chosen, np.searchsorted(self.first_rows, rows, side="right") - 1)
        positions: npt.NDArray[np.int64] = rows - self.first_rows[chosen][page] + starts[page]
        return positions


def column_pages(source: pa.NativeFile, metadata: pq.FileMetaData, group: int, name: str) -> ColumnPages | None:
    """Return the pages of a column of a row group; None if Arrow must read the column, or if it does not exist.

    Raises:
        CorruptData: Page headers do not match the footer.
    """
    number = next((n for n in range(metadata.num_columns) if metadata.schema.column(n).path == name), None)
    if number is None:
        return None
    leaf, chunk = metadata.schema.column(number), metadata.row_group(group).column(number)
    if (
        leaf.path != leaf.name
        or leaf.max_repetition_level
        or leaf.max_definition_level > 1
        or leaf.physical_type not in _PHYSICAL
        or leaf.converted_type not in _CONVERTED
        or chunk.compression not in _CODECS
        or (leaf.converted_type == "NONE" and leaf.logical_type.type != "NONE")
    ):
        return None
    start = min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
    source.seek(start)
    data = memoryview(source.read_buffer(chunk.total_compressed_size)).cast("B")
    if len(data) != chunk.total_compressed_size:
        raise CorruptData(
            f"the pages of {name} do not match the footer", offset=start, expected=chunk.total_compressed_size, found=len(data)
        )
    return _walked(data, start, leaf, chunk)


def read_pages(pages: ColumnPages, chosen: npt.NDArray[np.int64], open_: Callable[[pa.NativeFile], pq.ParquetFile]) -> pa.Table:
    """Return the rows of the chosen pages, in order, as a table of one column.

    Args:
        chosen: Page numbers.
        open_: Opens the file in memory.
    """
    chosen_pages = [pages.pages[number] for number in chosen.tolist()]
    dictionary = [] if pages.dictionary is None else [pages.dictionary]
    leaf = pages.leaf
    column = MemoryColumn(
        leaf.name,
        _PHYSICAL[leaf.physical_type],
        leaf.max_definition_level == 1,
        [data for data, _ in chosen_pages],
        [data for data, _ in dictionary],
        sum(size for _, size in (*dictionary, *chosen_pages)),
        codec=pages.codec,
        converted=_CONVERTED[leaf.converted_type],
        length=leaf.length if leaf.physical_type == "FIXED_LEN_BYTE_ARRAY" else None,
        precision=leaf.precision,
        scale=leaf.scale,
    )
    rows = int(np.diff(pages.first_rows)[chosen].sum())
    return open_(memory_file([column], rows)).read(use_threads=False)


def _walked(data: memoryview, start: int, leaf: Any, chunk: Any) -> ColumnPages | None:
    at = seen = 0
    count, codec, ends = chunk.num_values, _CODECS[chunk.compression], _ends(chunk.statistics)
    first_rows, pages = [0], []
    bounds: list[PageBounds | None] = []
    dictionary = None
    while seen < count:
        offset = start + at
        page_header, content = read_numbers(data, at, start)
        kind, unpacked, packed = (_int(page_header, number) for number in (1, 2, 3))
        if unpacked < 0 or not 0 <= packed <= len(data) - content:
            raise CorruptData(f"invalid size of a page of {leaf.name}", offset=offset, expected=len(data) - content, found=packed)
        end = content + packed
        page = data[at:end], content - at + unpacked
        at = end
        header = page_header.get(PAGE_HEADERS.get(kind, 0))
        if kind == INDEX:
            continue
        if not isinstance(header, dict):
            return None
        if kind == DICTIONARY:
            dictionary = page
            continue
        values = _int(header, 1)
        if not 0 < values <= count - seen:
            raise CorruptData(
                f"invalid number of values of a page of {leaf.name}", offset=offset, expected=count - seen, found=values
            )
        seen += values
        first_rows.append(seen)
        pages.append(page)
        bounds.append(_header_bounds(header.get(_STATISTICS[kind]), leaf))
    return ColumnPages(leaf, codec, np.array(first_rows, dtype=np.int64), _ascending(bounds, ends), tuple(pages), dictionary)


def _ends(statistics: Any) -> tuple[Any, Any] | None:
    """Return the minimum and maximum of a column of a row group, if its footer has them."""
    if statistics is None or not statistics.has_min_max:
        return None
    low, high = (v.encode() if isinstance(v, str) else v for v in (statistics.min_raw, statistics.max_raw))
    return (low, high) if type(low) is type(high) and isinstance(low, (int, bytes)) else None


def _header_bounds(statistics: Any, leaf: Any) -> PageBounds | None:
    """Return the bounds in a page's header; None if it has none."""
    if not isinstance(statistics, dict):
        return None
    least, greatest = (_value(statistics.get(number), leaf) for number in (6, 5))
    return None if least is None or greatest is None else PageBounds(least, greatest)


def _ascending(page_bounds: Sequence[PageBounds | None], ends: tuple[Any, Any] | None) -> tuple[PageBounds, ...] | None:
    """Return the bounds of pages as `ColumnPages` defines them. ends: minimum and maximum in the footer."""
    if ends is None or len(page_bounds) < _LEAST_PAGES:
        return None
    low, high = ends
    edges: list[Any] = []
    for page in page_bounds:
        if page is None or type(page.least) is not type(low) or type(page.greatest) is not type(low):
            return None
        values = [*edges[-1:], page.least, page.greatest]
        if values[0] < low or values[-1] > high or values != sorted(values):
            return None
        edges += (page.least, page.greatest)
    reach = [low, *edges[1:-1], high]
    # The values of page n are between the end of the previous page and the start of the next.
    return tuple(PageBounds(reach[max(0, 2 * n - 1)], reach[min(len(reach) - 1, 2 * n + 2)]) for n in range(len(page_bounds)))


def _value(data: Any, leaf: Any) -> int | bytes | None:
    """Return a bound as a footer encodes it, for integers, times and text; None for other types."""
    if not isinstance(data, bytes) or leaf.converted_type == "DECIMAL":
        return None
    if leaf.physical_type == "BYTE_ARRAY":
        return data
    layout = _NUMBERS.get(leaf.physical_type)
    return layout.unpack(data)[0] if layout is not None and len(data) == layout.size else None


def _int(fields: Numbers, number: int) -> int:
    value = fields.get(number, -1)
    return value if isinstance(value, int) else -1

"""Open base files for reading: errors are translated and name the file; footers provide key filters and metadata.

Source: docs/formats/base-file.md, "Footer".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyhudi.errors import CorruptData, TableState, Unsupported
from pyhudi.format.bloom_filter import BloomFilter
from pyhudi.format.bloom_probe import text_might_contain
from pyhudi.format.names import is_orc
from pyhudi.format.orc.orc_reader import OrcFile, OrcFooter
from pyhudi.format.parquet.page_checks import ChecksumMode, PageChecks
from pyhudi.format.parquet.parquet_file import CheckedParquetFile, open_parquet, read_footer, read_parted_footer
from pyhudi.options import service_options
from pyhudi.storage.base import Storage
from pyhudi.table.footer_cache import FooterCache
from pyhudi.tasks.dictionary_columns import coded_columns


def missing_file_error(storage: Storage, path: str) -> TableState:
    """Return the error for a missing file."""
    return missing_error(storage.absolute(path))


def missing_error(uri: str) -> TableState:
    """Return the error for a missing file with an absolute path."""
    return TableState(
        f"{uri} is missing: if a clean removed it since this query began, run the query again, and retain "
        f"more commits ({service_options.CLEAN_COMMITS_RETAINED}, or a savepoint); else `Table.validate()` lists what "
        "is missing, and a "
        "rollback or a restore returns to a state whose files exist"
    )


def open_ranges(storage: Storage, path: str) -> Callable[[int, int], bytes]:
    """`read_range` of a file.  Raises `missing_file_error` if it is missing."""

    def read(offset: int, length: int) -> bytes:
        try:
            return storage.read_range(path, offset, length)
        except TableState as error:
            raise missing_file_error(storage, path) from error

    return read


BLOOM_KEY = "org.apache.hudi.bloomfilter"
BLOOM_KEY_BEFORE_APACHE = "com.uber.hoodie.bloomfilter"
BLOOM_TYPE_KEY = "hoodie_bloom_filter_type_code"
_FILTER_KEYS = (BLOOM_KEY.encode(), BLOOM_KEY_BEFORE_APACHE.encode())
MIN_KEY = "hoodie_min_record_key"
MAX_KEY = "hoodie_max_record_key"


OpenFile = pq.ParquetFile | OrcFile
"""An open base file; the same interface for every format."""

Footer = pq.FileMetaData | OrcFooter
"""Footer of a base file; the same interface for every format."""

BATCH_ROWS = 32_768
"""Rows of a base file that are decoded at a time."""


def row_group_batches(file: OpenFile, group: int, columns: Sequence[str], batch_rows: int = BATCH_ROWS) -> Iterator[pa.Table]:
    """Yield the rows of a row group in some columns, at least one, in tables of at most `batch_rows` rows; a stripe of ORC
    is one table.
    """
    if isinstance(file, CheckedParquetFile):
        yield from file.read_batches(group, columns, batch_rows)
    else:
        yield file.read_row_group(group, columns=columns, use_threads=False)


@contextmanager
def open_base_file(
    storage: Storage, path: str, columns_to_code: Collection[str] = (), *, is_bootstrapped: bool = False
) -> Iterator[OpenFile]:
    """Open a base file for reading during a `with` block.

    Args:
        columns_to_code: Columns to read as dictionaries if that is cheaper.
        is_bootstrapped: The file was not written for a table, see `OrcFile`.

    Raises:
        CorruptData: Its bytes do not have the format of its extension, or fail a Parquet checksum, now or while it is
            read.
        TableState: It is missing.
        Unsupported: A file of another format.
    """
    with _translated_errors(storage, path), open_base_input(storage, path) as source:
        if is_orc(path):
            yield OrcFile(source, is_bootstrapped=is_bootstrapped)
            return
        with _opened(source, read_footer(source), columns_to_code) as file:
            yield file


@contextmanager
def open_base_file_and_key_values(
    storage: Storage, path: str, columns_to_code: Collection[str] = ()
) -> Iterator[tuple[OpenFile, Mapping[bytes, bytes]]]:
    """As `open_base_file`, with the key-values of the footer. The metadata of a Parquet file written by PyHudi omits its
    key filter: metadata whose schema was used stays in memory until the next garbage collection.
    """
    with _translated_errors(storage, path), open_base_input(storage, path) as source:
        if is_orc(path):
            orc = OrcFile(source)
            yield orc, orc.metadata.metadata or {}
            return
        footer = read_parted_footer(source, _FILTER_KEYS)
        with _opened(source, footer.metadata, columns_to_code) as file:
            yield file, footer.key_values


@contextmanager
def open_base_rows(
    storage: Storage,
    path: str,
    columns_to_code: Collection[str] = (),
    footers: FooterCache | None = None,
    keys: pa.StringArray | None = None,
    checksums: ChecksumMode = ChecksumMode.ALWAYS,
) -> Iterator[OpenFile | None]:
    """As `open_base_file`, for a reader of rows: the metadata of a Parquet file written by PyHudi omits its key filter.

    Args:
        footers: Cache of footers; a file of another size or time is another one.
        keys: The requested record keys, None for all.
        checksums: When page checksums are verified; without a cache of footers, once is always.

    Yields:
        The file; None if its key filter excludes all of the keys.
    """
    with _translated_errors(storage, path):
        if is_orc(path):
            with open_base_input(storage, path) as source:
                orc = OrcFile(source)
                yield None if keys is not None and footer_rules_out(orc.metadata, keys) else orc
            return
        stamp = None
        if footers is not None and (stamp := storage.stat(path)) is None:
            raise missing_file_error(storage, path)
        footer = None if footers is None or stamp is None else footers.get(stamp)
        if (
            footer is not None
            and keys is not None
            and footer.texts is not None
            and _keys_excluded_by_filter(footer.key_values, keys)
        ):
            yield None
            return
        with open_base_input(storage, path) as source:
            if footer is None or (keys is not None and footer.texts is None):
                footer = read_parted_footer(source, _FILTER_KEYS)
                if footers is not None and stamp is not None:
                    footers.put(stamp, footer if keys is not None else footer.without_texts())
                if keys is not None and _keys_excluded_by_filter(footer.key_values, keys):
                    yield None
                    return
            checks = PageChecks(checksums)
            if checksums is ChecksumMode.ONCE and footers is not None and stamp is not None:
                checks = footers.checks(stamp)
            with _opened(source, footer.metadata, columns_to_code, checks) as file:
                yield file


def _opened(
    source: pa.NativeFile, metadata: pq.FileMetaData, columns_to_code: Collection[str], checks: PageChecks | None = None
) -> pq.ParquetFile:
    coded = coded_columns(metadata, metadata.schema.to_arrow_schema(), columns_to_code) if columns_to_code else ()
    return open_parquet(source, coded, metadata, checks)


@contextmanager
def _translated_errors(storage: Storage, path: str) -> Iterator[None]:
    """Translate errors of a file, with its path."""
    try:
        yield
    except CorruptData as error:
        raise error.with_path(storage.absolute(path)) from error
    except (pa.ArrowInvalid, UnicodeDecodeError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            # The operating system raised this, not the format reader.
            raise
        raise CorruptData(f"a base file cannot be read: {error}").with_path(storage.absolute(path)) from error


@contextmanager
def open_base_bytes(storage: Storage, path: str) -> Iterator[pa.NativeFile]:
    """Open the bytes of a base file during a `with` block, in which errors are translated as by `open_base_file`."""
    with _translated_errors(storage, path), open_base_input(storage, path) as source:
        yield source


def open_base_input(storage: Storage, path: str) -> pa.NativeFile:
    """Open the bytes of a base file; the caller closes it. Raises TableState when it is missing, Unsupported for a
    format other than Parquet and ORC.
    """
    is_orc(path)  # Raises Unsupported for other formats.
    try:
        return storage.open_input(path)
    except TableState as error:
        raise missing_file_error(storage, path) from error


def footer_text(metadata: Footer, key: str) -> str | None:
    """Return a key-value of a footer as text, None when it is missing."""
    text = (metadata.metadata or {}).get(key.encode())
    return None if text is None else text.decode()


def footer_filter(metadata: Footer) -> BloomFilter | None:
    """Return the key filter in a base file's footer, None when there is none."""
    return key_filter(metadata.metadata or {})


def key_filter(key_values: Mapping[bytes, bytes]) -> BloomFilter | None:
    """Return the key filter in the key-values of a base file's footer, None when there is none."""
    entry = key_filter_entry(key_values)
    return None if entry is None else BloomFilter.from_text(entry[1].decode(), entry[0])


def key_filter_entry(key_values: Mapping[bytes, bytes]) -> tuple[str, bytes] | None:
    """Return the type and the text of the key filter in the key-values of a base file's footer, None when there is none."""
    text = next((value for key in _FILTER_KEYS if (value := key_values.get(key))), None)
    return None if text is None else ((key_values.get(BLOOM_TYPE_KEY.encode()) or b"SIMPLE").decode(), text)


def footer_rules_out(metadata: Footer, keys: pa.StringArray) -> bool:
    """Return whether the key filter in a base file's footer excludes all of some record keys; False if there is none,
    or its type is not supported.
    """
    return _keys_excluded_by_filter(metadata.metadata or {}, keys)


def _keys_excluded_by_filter(key_values: Mapping[bytes, bytes], keys: pa.StringArray) -> bool:
    entry = key_filter_entry(key_values)
    if entry is None or pc.any(pc.equal(keys, "")).as_py():
        # No filter knows the empty key.
        return False
    kind, text = entry
    try:
        return not text_might_contain(text, kind, keys)
    except Unsupported:
        return False

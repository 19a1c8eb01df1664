"""A scan as a pyarrow dataset, for engines that read datasets: `Scan.to_dataset`.

Engines push columns and filters down to a dataset, through `scanner` (DuckDB, Polars) or through `get_fragments` and
the scanners of the fragments (DataFusion). The translatable part of a filter prunes file slices before any file is
opened: by partitions, and by statistics and indexes of the metadata table. The remaining slices are read by one of two readers:

    Arrow's Parquet reader    slices without log files, of a scan without a filter, if the file has the columns of the
                              table; a column missing in the file is null, or a partition value from the path
    PyHudi's reader           slices with log files or with rows in another file, renamed or retyped columns, scans with
                              a filter (incremental queries have one), change data

Arrow then evaluates the filter on every row, so a filter has Arrow's semantics.

`HudiDataset` is a `FileSystemDataset` of the Parquet files, because engines require that type. A slice that Arrow
cannot read is represented by a file that cannot be opened: an engine that bypasses the methods here fails, and never
returns wrong rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from operator import and_, or_
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from pyhudi.api.splits import first_rows, read_batches
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import CorruptData, HudiError, Unsupported
from pyhudi.format.avro_to_arrow import column_default
from pyhudi.format.names import is_orc
from pyhudi.format.parquet.page_checks import ChecksumMode
from pyhudi.format.parquet.parquet_file import read_footer
from pyhudi.format.timestamp_units import in_millis
from pyhudi.operations.read.change_queries import ChangeQuery
from pyhudi.operations.read.query import SnapshotQuery
from pyhudi.planning.partition_pruning import partition_values_from_path
from pyhudi.records.filters.arrow_expressions import arrow_scalar
from pyhudi.records.filters.from_arrow import columns_read
from pyhudi.records.filters.pushdown import pushed_down
from pyhudi.records.keys.key_spec import path_valued_columns
from pyhudi.storage.arrow_filesystem import readable_files
from pyhudi.tasks.base_file_reader import open_base_input
from pyhudi.tasks.incoming_layout import rows_without_columns
from pyhudi.tasks.read_slice import ReadSpec, is_joined, partition_path_values, values_of_folder

__all__ = ["HudiDataset"]

_FILES_AT_ONCE = 32
"""Parquet files per Arrow scanner; the next files are checked after it ends."""

_FORMATS = {
    verified: ds.ParquetFileFormat(
        default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=verified)
    )
    for verified in (True, False)
}
"""Parquet with and without verification of page checksums."""

Columns = Sequence[str] | Mapping[str, pc.Expression]
Batches = Iterator[pa.RecordBatch]


class HudiDataset(ds.FileSystemDataset):
    """The rows of a scan as a lazy dataset, created by `Scan.to_dataset`. It can be pickled.

    Supported: `schema`, `files`, `scanner`, `to_batches`, `to_table`, `head`, `take`, `count_rows` and `get_fragments`;
    `join` and `sort_by` if Arrow reads all files.
    """

    def __init__(self, query: SnapshotQuery | ChangeQuery, threads: int = 0) -> None:
        self._query = query
        self._threads = threads
        self._files = _ArrowFiles(query)
        fragments = [self._files.fragment(task) or self._files.refusing(task) for task in query.tasks]
        super().__init__(fragments, query.schema, self._files.format, self._files.system)

    def __reduce__(self) -> tuple[Any, ...]:
        return HudiDataset, (self._query, self._threads)

    def __repr__(self) -> str:
        return f"HudiDataset({self._query.snapshot.context.storage.uri!r}, {len(self._query.tasks)} file slices)"

    @property
    def schema(self) -> pa.Schema:
        """Schema of the scan."""
        return self._query.schema

    @property
    def files(self) -> list[str]:
        """URIs of the Parquet files that Arrow reads directly; rows of other slices come from PyHudi's reader."""
        absolute = self._query.snapshot.context.storage.absolute
        fragments = (self._files.fragment(task) for task in self._query.tasks)
        return [absolute(fragment.path) for fragment in fragments if fragment is not None]

    def scanner(self, columns: Columns | None = None, filter: pc.Expression | None = None, **options: Any) -> BatchScanner:
        """Return a scanner of the rows that match a filter.

        Args:
            columns: Column names, or expressions by the names of their results; None for all.
            filter: Predicate on the dataset's columns.
            options: Options of a pyarrow scanner, for the files that Arrow reads.
        """
        return BatchScanner(self.schema, columns, filter, partial(self._read, options=options))

    def to_batches(self, columns: Columns | None = None, filter: pc.Expression | None = None, **options: Any) -> Batches:
        """Read the rows of `scanner` as record batches.

        Args:
            columns: As in `scanner`.
            filter: As in `scanner`.
            options: As in `scanner`.
        """
        return self.scanner(columns, filter, **options).to_batches()

    def to_table(self, columns: Columns | None = None, filter: pc.Expression | None = None, **options: Any) -> pa.Table:
        """Read the rows of `scanner` into one table.

        Args:
            columns: As in `scanner`.
            filter: As in `scanner`.
            options: As in `scanner`.
        """
        return self.scanner(columns, filter, **options).to_table()

    def head(
        self, num_rows: int, columns: Columns | None = None, filter: pc.Expression | None = None, **options: Any
    ) -> pa.Table:
        """Read the first rows of `scanner`.

        Args:
            num_rows: Maximum number of rows.
            columns: As in `scanner`.
            filter: As in `scanner`.
            options: As in `scanner`.
        """
        return self.scanner(columns, filter, **options).head(num_rows)

    def take(
        self, indices: pa.Array, columns: Columns | None = None, filter: pc.Expression | None = None, **options: Any
    ) -> pa.Table:
        """Return rows of `scanner` by position; all rows are read.

        Args:
            indices: Positions of the rows, from 0.
            columns: As in `scanner`.
            filter: As in `scanner`.
            options: As in `scanner`.
        """
        return self.to_table(columns, filter, **options).take(indices)

    def count_rows(self, filter: pc.Expression | None = None, **options: Any) -> int:
        """Count the rows that match the filter.

        Args:
            filter: As in `scanner`.
            options: As in `scanner`.
        """
        return self.scanner([], filter, **options).count_rows()

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[Any]:
        """Return a pyarrow fragment for each Parquet file that Arrow reads, and a `SliceFragment` for each other file slice.

        Slices without matching rows are pruned; a fragment returns all its rows.

        Args:
            filter: Predicate that prunes file slices.
        """
        for task, fragment in self._fragments(self._narrowed(filter), self.schema.names):
            yield SliceFragment(self._query, task) if fragment is None else fragment

    def filter(self, expression: pc.Expression) -> NoReturn:
        """Not supported: pass filters to the methods that read.

        Args:
            expression: The filter.

        Raises:
            Unsupported: Always.
        """
        raise Unsupported("a table's dataset cannot be filtered: pass the filter to to_table, to scanner, or to Table.scan")

    def replace_schema(self, schema: pa.Schema) -> HudiDataset:
        """Return the dataset itself; other schemas are not supported.

        Args:
            schema: The dataset's schema.

        Raises:
            Unsupported: The schema differs.
        """
        if schema.equals(self.schema):
            return self
        raise Unsupported("a table's dataset has the schema of its scan: select columns in to_table, or in Table.scan")

    def _narrowed(self, filter: pc.Expression | None) -> SnapshotQuery | ChangeQuery:
        predicate = None if filter is None else pushed_down(filter, self.schema)
        return self._query if predicate is None else self._query.narrowed(None, predicate)

    def _fragments(self, query: SnapshotQuery | ChangeQuery, columns: Sequence[str]) -> Iterator[tuple[Any, Any]]:
        """Each task of a query, with the fragment with which Arrow reads it, or None for PyHudi's reader."""
        look = partial(self._files.checked, columns=columns)
        yield from zip(query.tasks, LocalEngine(self._threads).pipelined(look, query.tasks), strict=True)

    def _read(self, columns: Columns, filter: pc.Expression | None, options: Mapping[str, Any]) -> Batches:
        query = self._narrowed(filter)
        needed = _columns_needed(self.schema, columns, filter)
        by_arrow = partial(self._files.read, columns=columns, filter=filter, options=options)
        fragments: list[Any] = []
        for task, fragment in self._fragments(query, needed):
            if fragment is None:
                yield from _read_task(query, task, columns, filter)
                continue
            fragments.append(fragment)
            if len(fragments) == _FILES_AT_ONCE:
                yield from by_arrow(fragments)
                fragments = []
        yield from by_arrow(fragments)


class SliceFragment:
    """A file slice read by PyHudi's reader, with the interface of a pyarrow fragment."""

    def __init__(self, query: SnapshotQuery | ChangeQuery, task: Any) -> None:
        self._query = query
        self._task = task

    @property
    def physical_schema(self) -> pa.Schema:
        """Schema of the dataset."""
        return self._query.schema

    @property
    def partition_expression(self) -> pc.Expression:
        """Always true: no guarantee about the rows."""
        return pc.scalar(True)

    def scanner(
        self, schema: pa.Schema | None = None, columns: Columns | None = None, filter: pc.Expression | None = None, **_: Any
    ) -> BatchScanner:
        """As `HudiDataset.scanner`.

        Args:
            schema: Schema of the dataset, or None.
            columns: As in `HudiDataset.scanner`.
            filter: As in `HudiDataset.scanner`.
            _: Options of Arrow's file reader, which have no effect here.
        """
        if schema is not None and not schema.equals(self._query.schema):
            raise Unsupported("a fragment of a table's dataset is read with the schema of the dataset")
        return BatchScanner(self._query.schema, columns, filter, self._read)

    def to_batches(self, schema: pa.Schema | None = None, **options: Any) -> Batches:
        """Read the rows of `scanner` as record batches."""
        return self.scanner(schema, **options).to_batches()

    def to_table(self, schema: pa.Schema | None = None, **options: Any) -> pa.Table:
        """Read the rows of `scanner` into one table."""
        return self.scanner(schema, **options).to_table()

    def head(self, num_rows: int, **options: Any) -> pa.Table:
        """Read the first rows of `scanner`."""
        return self.scanner(**options).head(num_rows)

    def count_rows(self, filter: pc.Expression | None = None, **options: Any) -> int:
        """Count the rows that match the filter."""
        return self.scanner(columns=[], filter=filter, **options).count_rows()

    def _read(self, columns: Columns, filter: pc.Expression | None) -> Batches:
        predicate = None if filter is None else pushed_down(filter, self._query.schema)
        return _read_task(self._query.narrowed(None, predicate), self._task, columns, filter)


class BatchScanner:
    """Scanner of a dataset or a fragment, with the interface of a pyarrow scanner.

    Arrow's scanner of a stream occupies a thread of Arrow's pool while it waits for the next batch. The producer of the
    batches needs threads of that pool, so the two could deadlock.
    """

    def __init__(
        self,
        schema: pa.Schema,
        columns: Columns | None,
        filter: pc.Expression | None,
        read: Callable[[Columns, pc.Expression | None], Batches],
    ) -> None:
        """Raises pyarrow's errors for columns that do not exist, and for a filter that does not fit them."""
        self.dataset_schema = schema
        self._columns: Columns = list(schema.names) if columns is None else columns
        self._filter = filter
        self._read = read
        self.projected_schema: pa.Schema = _scanned(schema.empty_table(), self._columns, filter).projected_schema

    def to_batches(self) -> Batches:
        """Read the rows as record batches."""
        return self._read(self._columns, self._filter)

    def to_reader(self) -> pa.RecordBatchReader:
        """Read the rows as a stream."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """Read the rows into one table."""
        batches = list(self.to_batches())
        if not self.projected_schema.names:
            return rows_without_columns(sum(batch.num_rows for batch in batches))
        return pa.Table.from_batches(batches, self.projected_schema)

    def head(self, num_rows: int) -> pa.Table:
        """Read the first rows."""
        return pa.Table.from_batches(first_rows(self.to_batches(), num_rows), self.projected_schema)

    def count_rows(self) -> int:
        """Count the rows."""
        return sum(batch.num_rows for batch in self._read([], self._filter))


class _ArrowFiles:
    """The base files of a query, as pyarrow fragments."""

    def __init__(self, query: SnapshotQuery | ChangeQuery) -> None:
        self._spec = query.spec if isinstance(query, SnapshotQuery) and _returns_stored_rows(query.spec) else None
        self._schema = query.schema
        self._storage = query.snapshot.context.storage
        self.system = readable_files(self._storage.uri, partial(open_base_input, self._storage))
        never = self._spec is not None and self._spec.checksums is ChecksumMode.NEVER
        self.format = _FORMATS[not never]

    def fragment(self, task: Any) -> Any:
        """Fragment of the base file of a slice without log files, if its name shows that Arrow can read it; otherwise None."""
        spec = self._spec
        if (
            spec is None
            or task.base is None
            or task.logs
            or task.full_slice is not None
            or is_joined(task)
            or is_orc(task.base.path)
        ):
            return None
        if spec.ids is not None and spec.ids.origins(task.base.name.instant_time) is not None:
            return None
        partition_expression = _path_guarantees(spec, task.partition)
        return self.format.make_fragment(task.base.path, filesystem=self.system, partition_expression=partition_expression)

    def refusing(self, task: Any) -> Any:
        """A fragment that cannot be opened."""
        return self.format.make_fragment(
            f"{task.partition}/{task.file_id}", filesystem=readable_files(self._storage.uri, _refuse)
        )

    def checked(self, task: Any, columns: Sequence[str]) -> Any:
        """As `fragment`, if the file has the columns of the table. Errors of the file are left to PyHudi's reader to report."""
        fragment = self.fragment(task)
        if fragment is None or self._spec is None or self._may_differ_from_folder(task, columns):
            return None
        try:
            with open_base_input(self._storage, task.base.path) as source:
                read_footer(source)
            file_schema = fragment.physical_schema
        except (HudiError, pa.ArrowInvalid, UnicodeDecodeError, OSError):
            return None
        return fragment if all(self._has_table_column(file_schema, name) for name in columns) else None

    def read(
        self, fragments: Sequence[Any], columns: Columns, filter: pc.Expression | None, options: Mapping[str, Any]
    ) -> Batches:
        """Read the rows of fragments."""
        if not fragments:
            return
        try:
            files = ds.FileSystemDataset(fragments, self._schema, self.format, self.system)
            yield from files.scanner(columns=columns, filter=filter, **options).to_batches()
        except (pa.ArrowInvalid, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                # An error of the operating system, not of the Parquet reader.
                raise
            paths = ", ".join(fragment.path for fragment in fragments[:3])
            raise CorruptData(
                f"one of {len(fragments)} base files ({paths}, ...) cannot be read: {error}; run `Table.validate()` to find it"
            ).with_path(self._storage.uri) from error

    def _may_differ_from_folder(self, task: Any, columns: Sequence[str]) -> bool:
        """Return whether Arrow does not know the values of a column from the partition expression of the fragment."""
        assert self._spec is not None, "only files that Arrow can read are checked"
        of_folder = values_of_folder(self._spec, task.partition, self._spec.output)
        return any(
            len(values) > 1 or pa.types.is_floating(values[0].type) for name, values in of_folder.items() if name in columns
        )

    def _has_table_column(self, file_schema: pa.Schema, name: str) -> bool:
        assert self._spec is not None, "only files that Arrow can read are checked"
        place = file_schema.get_field_index(name)
        if place >= 0:
            return name not in self._spec.path_columns and file_schema.field(place).type == self._schema.field(name).type
        return name in self._spec.path_columns or name not in path_valued_columns(self._spec.keys)


def _returns_stored_rows(spec: ReadSpec) -> bool:
    # A file written before a column with a default was added is recognized by its footer only, and so is one of a release
    # that stored milliseconds in another type.
    is_plain = spec.condition is None and not spec.values_from_path
    return is_plain and all(column_default(field) is None and not in_millis(field) for field in spec.output)


def _path_guarantees(spec: ReadSpec, partition: str) -> pc.Expression:
    """Expression that holds for all rows of a partition: values of columns that only the path stores."""
    path_values = partition_path_values(spec, partition, spec.output)
    guarantees = [
        pc.field(name).is_null() if value.as_py() is None else pc.field(name) == value for name, value in path_values.items()
    ]
    for name, values in partition_values_from_path(partition, spec.keys, spec.output, ()).items():
        type_ = spec.output.field(name).type
        if name not in path_values and not pa.types.is_floating(type_):
            tests = [pc.field(name).is_null() if v is None else pc.field(name) == arrow_scalar(v, type_) for v in values]
            guarantees.append(reduce(or_, tests))
    return reduce(and_, guarantees) if guarantees else pc.scalar(True)


def _refuse(path: str) -> NoReturn:
    raise Unsupported(
        f"Arrow cannot read file slice {path} as a Parquet file: it has log files, other columns, or a filter; read the "
        "dataset through its own methods (to_table, to_batches, scanner)"
    )


def _read_task(query: SnapshotQuery | ChangeQuery, task: Any, columns: Columns, filter: pc.Expression | None) -> Batches:
    """Read the rows of a slice or change source with PyHudi's reader; Arrow filters and projects them."""
    needed = _columns_needed(query.schema, columns, filter)
    for batch in read_batches(query.narrowed(needed, None).reader, [task]):
        if needed:
            yield from _scanned(pa.Table.from_batches([batch]), columns, filter).to_batches()
        else:
            yield batch


def _scanned(rows: pa.Table, columns: Columns, filter: pc.Expression | None) -> Any:
    return ds.dataset(rows).scanner(columns=columns, filter=filter, use_threads=False)


def _columns_needed(schema: pa.Schema, columns: Columns, filter: pc.Expression | None) -> list[str]:
    """The columns to read, in the order of the schema."""
    expressions = [*(columns.values() if isinstance(columns, Mapping) else ()), *(() if filter is None else (filter,))]
    heads = set() if isinstance(columns, Mapping) else {name.split(".")[0] for name in columns} | set(columns)
    for expression in expressions:
        named = columns_read(expression)
        heads |= set(schema.names) if named is None else named
    return [name for name in schema.names if name in heads]

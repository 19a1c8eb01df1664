"""Batches on Spark: rows are read, transformed, checked and written by tasks of the cluster.

Files are read one in each task by the code that reads them embedded, so that the same records are bad on both engines.
The driver receives the schemas of files and the number of bad rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from pyhudi.api.scan import Scan
from pyhudi.api.table_handle import is_spark_value
from pyhudi.engines.spark.jobs import run_tasks, task_rows, translated_errors
from pyhudi.engines.spark.read_dataframe import query_dataframe
from pyhudi.engines.spark.type_conversion import DataFrame, SparkSession, literal, to_arrow_schema, to_spark_schema
from pyhudi.engines.spark.worker_errors import with_error_fields
from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.features.ingestion.error_rows import ErrorRows
from pyhudi.features.ingestion.file_source import Files
from pyhudi.features.ingestion.row_checks import RowRules
from pyhudi.features.ingestion.source_protocol import ReadContext, TextRules
from pyhudi.features.ingestion.transforms import SOURCE_NAME, FunctionTransform, SqlTransform
from pyhudi.records.type_normalization import normalize_types

_BAD = pa.schema([(name, pa.string()) for name in ("_pyhudi_record", "_pyhudi_reason", "_pyhudi_origin")])
_IS_GOOD = "_pyhudi_reason IS NULL"


@dataclass(frozen=True, slots=True)
class SparkBatch:
    """A batch on the way through a job.

    Attributes:
        session: The session.
        kind: Kind of the source.
        resources: Releases cached rows and views at the end.
        bad: Bad rows so far, as record, reason and origin.
    """

    session: SparkSession
    kind: str
    resources: ExitStack
    bad: tuple[DataFrame, ...] = ()

    def read(self, rows: Any, known: pa.Schema | None, texts: TextRules, *, is_complete: bool) -> tuple[SparkBatch, DataFrame]:
        """Return the rows of the source. Arguments as in ReadContext.

        Raises:
            Unsupported: The source does not read on Spark.
        """
        if is_spark_value(rows):
            return self, rows
        if isinstance(rows, Scan):
            return self, query_dataframe(self.session, rows.query)
        if not isinstance(rows, Files):
            raise Unsupported(
                f"source {self.kind} does not read on Spark: run the job without spark, or let a Python source return a DataFrame"
            )
        tasks = [replace(rows, paths=(path,)) for path in rows.paths]
        if known is None or not is_complete:
            known = rows.unified(run_tasks(self.session, _FileSchema(known, texts), tasks))
        schema = normalize_types(pa.schema([field.with_nullable(True) for field in known]))
        frame = task_rows(self.session, _FileRows(schema, texts), tasks, to_spark_schema(_with_bad(schema)))
        return self._divided(frame)

    def transformed(self, frame: DataFrame, transforms: Sequence[SqlTransform | FunctionTransform]) -> DataFrame:
        """Apply transforms. SQL runs in the session, and sees its tables too."""
        for transform in transforms:
            if isinstance(transform, SqlTransform):
                view = f"pyhudi_source_{uuid.uuid4().hex}"
                frame.createOrReplaceTempView(view)
                self.resources.callback(self.session.catalog.dropTempView, view)
                with translated_errors():
                    frame = self.session.sql(transform.sql.replace(SOURCE_NAME, view).strip().rstrip(";"))
                continue
            frame = transform.call(frame)
            if not is_spark_value(frame):
                raise InvalidRequest(
                    f"transform {transform.name} returned {type(frame).__name__}: on Spark it returns a DataFrame"
                )
        return frame

    def checked(self, frame: DataFrame, rules: RowRules) -> tuple[SparkBatch, DataFrame]:
        """Divide rows by the rules of the table."""
        schema = rules.output_schema(normalize_types(to_arrow_schema(frame.schema)))
        return self._divided(frame.mapInArrow(_Check(rules, schema, self.kind), to_spark_schema(_with_bad(schema))))

    def store_bad(self, errors: ErrorRows) -> None:
        """Commit the bad rows to the error table. Raises InvalidRequest for the first one if there is none."""
        if not self.bad:
            return
        rows = self.bad[0]
        for more in self.bad[1:]:
            rows = rows.unionByName(more)
        with translated_errors():
            first = rows.limit(1).toArrow()
        if not first.num_rows:
            return
        if errors.open_table is None:
            errors.add(first["record"].to_pylist(), first["reason"].to_pylist(), first["origin"][0].as_py())
        numbered = rows.selectExpr(
            "*", "cast(row_number() OVER (PARTITION BY origin, record ORDER BY reason) AS string) AS number"
        )
        start = literal(errors.start or "")
        parts = ", ".join(f"concat(length({part}), ':', {part})" for part in (start, "origin", "record", "number"))
        table = errors.open_error_table()
        written = table.upsert(
            numbered.selectExpr(
                f"sha2(concat({parts}), 256) AS id",
                "record",
                "reason",
                "origin",
                f"{literal(errors.target)} AS target",
                f"{'cast(NULL AS string)' if errors.start is None else start} AS checkpoint",
                f"{table.context.env.now_ms()}L AS seen_ms",
            )
        )
        errors.count += written.rows_in - written.rows_combined

    def _divided(self, frame: DataFrame) -> tuple[SparkBatch, DataFrame]:
        cached = frame.persist()
        self.resources.callback(cached.unpersist)
        bad = cached.where(f"NOT ({_IS_GOOD})").selectExpr(*(f"{name} AS {name.removeprefix('_pyhudi_')}" for name in _BAD.names))
        return replace(self, bad=(*self.bad, bad)), cached.where(_IS_GOOD).drop(*_BAD.names)


def _with_bad(schema: pa.Schema) -> pa.Schema:
    return pa.schema([*(field.with_nullable(True) for field in schema), *_BAD])


@dataclass(frozen=True, slots=True)
class _FileSchema:
    """Task: the schema of a file."""

    known: pa.Schema | None
    texts: TextRules

    def __call__(self, files: Files) -> pa.Schema:
        return files(ReadContext(self.known, False, lambda *_: None, self.texts)).schema


@dataclass(frozen=True, slots=True)
class _FileRows:
    """Task: the rows of a file, and its bad records."""

    schema: pa.Schema
    texts: TextRules

    def __call__(self, _: int, files: Files) -> Iterator[pa.RecordBatch]:
        bad: list[tuple[str, str, str]] = []

        def reject(records: list[str], reasons: list[str], origin: str) -> None:
            bad.extend(_triples(records, reasons, origin))

        context = ReadContext(self.schema, True, reject, self.texts)
        for batch in files(context):
            yield _good_rows(batch, self.schema)
            yield from _bad_rows(bad, self.schema)
        yield from _bad_rows(bad, self.schema)


class _Check:
    """Task: rows that satisfy rules, and the others."""

    def __init__(self, rules: RowRules, schema: pa.Schema, origin: str) -> None:
        self._rules, self._schema, self._origin = rules, schema, origin

    @with_error_fields
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            good, records, reasons = self._rules.split(batch, self._schema)
            yield _good_rows(good, self._schema)
            yield from _bad_rows(list(_triples(records, reasons, self._origin)), self._schema)


def _triples(texts: Sequence[str], reasons: Sequence[str], origin: str) -> Iterator[tuple[str, str, str]]:
    return ((text, reason, origin) for text, reason in zip(texts, reasons, strict=True))


def _good_rows(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    nulls = [pa.nulls(batch.num_rows, field.type) for field in _BAD]
    return pa.RecordBatch.from_arrays([*batch.columns, *nulls], schema=_with_bad(schema))


def _bad_rows(bad: list[tuple[str, str, str]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    if bad:
        texts = [pa.array(column, pa.string()) for column in zip(*bad, strict=True)]
        nulls = [pa.nulls(len(bad), field.type) for field in schema]
        yield pa.RecordBatch.from_arrays([*nulls, *texts], schema=_with_bad(schema))
        bad.clear()

"""Configuration of an ingestion job: a TOML file, or a mapping with the same keys.

Every key is checked; an unknown one is refused with the nearest known one. A secret is not written into the file: any
text can be `{ env = "NAME" }` or `{ file = "path" }` instead.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from pyhudi.api.table import Table
from pyhudi.errors import InvalidRequest
from pyhudi.features.ingestion.file_source import FileSource
from pyhudi.features.ingestion.kafka_source import KafkaSource
from pyhudi.features.ingestion.schema_registry import SchemaRegistry
from pyhudi.features.ingestion.source_protocol import Limit, Source
from pyhudi.features.ingestion.sql_source import SqlSource
from pyhudi.features.ingestion.table_source import TableSource
from pyhudi.features.ingestion.transforms import FunctionTransform, SqlTransform, load_function
from pyhudi.format.avro_to_arrow import avro_to_arrow
from pyhudi.format.paths import file_name, parent_folder
from pyhudi.storage import open_storage
from pyhudi.storage.config_file import nearest, parse_section, read_toml, resolved
from pyhudi.storage.environment import Environment

SOURCES: Mapping[str, Callable[..., Source]] = {
    "files": FileSource,
    "table": TableSource,
    "sql": SqlSource,
    "kafka": KafkaSource,
}
_MODES = ("upsert", "append", "insert", "bulk_insert", "insert_overwrite", "insert_overwrite_table")
_SERVICES = ("inline", "background", "none")
_SCHEMAS = ("file", "table", "registry")


@dataclass(frozen=True, slots=True)
class TableJob:
    """One table of a job.

    Attributes:
        path: Location of the table; it is created if it does not exist.
        source: Where rows come from: `kind` and its settings, or an object with the method `read`.
        name: Name of a new table.
        record_key: Record key fields of a new table.
        partition_by: Partition fields of a new table.
        ordering: Ordering fields of a new table.
        table_type: `cow` or `mor`, for a new table.
        mode: How rows are written, as in `pyhudi.write`; None is upsert, and insert if the table generates its record keys.
        options: `hoodie.*` options of the table.
        storage_options: Credentials and settings of the table's store.
        schema_mode: Schema evolution that rows may cause, as in `Table.upsert`.
        missing_columns: Columns of the table that rows lack: "error" or "null", as in `Table.upsert`.
        commit_metadata: Entries stored in each commit, as in `Table.upsert`.
        schema: Columns of the source: `kind` file, table or registry, and its settings.
        transforms: SQL and functions, in order.
        max_rows: Maximum number of rows of a batch.
        max_bytes: Maximum size of a batch in the source.
        error_table: Location of the table for rows that do not fit; unset stops the job at the first one.
        services: Where table services run: inline after a commit, in a background thread, or none.
        checkpoint: Checkpoint from which to begin, once, instead of the stored one.
        ignore_checkpoint: Text; each new one has the stored checkpoint ignored, once.
    """

    path: str
    source: Any = field(repr=False)
    name: str | None = None
    record_key: tuple[str, ...] | None = None
    partition_by: tuple[str, ...] | None = None
    ordering: tuple[str, ...] | None = None
    table_type: str | None = None
    mode: str | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    schema_mode: str | None = None
    missing_columns: str | None = None
    commit_metadata: Mapping[str, str] = field(default_factory=dict)
    schema: Mapping[str, object] | None = field(default=None, repr=False)
    transforms: tuple[Any, ...] = ()
    max_rows: int | None = None
    max_bytes: int | None = None
    error_table: str | None = None
    services: str = "inline"
    checkpoint: str | None = None
    ignore_checkpoint: str | None = None

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("mode", self.mode, _MODES),
            ("services", self.services, _SERVICES),
            ("missing_columns", self.missing_columns, ("error", "null")),
        ):
            if value is not None and value not in allowed:
                raise InvalidRequest(f"table {self.path} has {name}={value!r}: choose from {', '.join(allowed)}")
        for name, number in (("max_rows", self.max_rows), ("max_bytes", self.max_bytes)):
            if number is not None and number < 1:
                raise InvalidRequest(f"table {self.path} has {name}={number}: it must be 1 or more")
        if self.error_table is not None and self.error_table.rstrip("/") == self.path.rstrip("/"):
            raise InvalidRequest(f"table {self.path} is its own error_table: choose another location")
        if self.checkpoint is not None and self.ignore_checkpoint is not None:
            raise InvalidRequest(f"table {self.path} has both checkpoint and ignore_checkpoint: set one of them")

    @property
    def limit(self) -> Limit:
        """Maximum size of a batch."""
        return Limit(self.max_rows, self.max_bytes)

    @property
    def source_kind(self) -> str:
        """Kind of the source, as stored in commits."""
        return str(self.source["kind"]) if isinstance(self.source, Mapping) else "python"

    def open_source(self, environment: Environment) -> Source:
        """Create the source from its settings in the job file; a source object is returned unchanged."""
        if not isinstance(self.source, Mapping):
            source: Source = self.source
            return source
        settings = dict(self.source)
        make = SOURCES[settings.pop("kind")]
        where = f"source {self.source_kind} of {self.path}"
        if isinstance(registry := settings.get("registry"), Mapping):
            settings["registry"] = parse_section(SchemaRegistry, registry, f"registry of {where}")
        elif isinstance(registry, str):
            settings["registry"] = SchemaRegistry(registry)
        fields = {field.name for field in dataclasses.fields(make)}  # type: ignore[arg-type]
        injected = {"environment": environment} if "environment" in fields else {}
        return parse_section(make, settings, where, injected)

    def source_schema(self, table: Table) -> pa.Schema | None:
        """Return the columns of the source from the schema provider; None without one."""
        if self.schema is None:
            return None
        settings = dict(self.schema)
        type_ = settings.pop("kind", None)
        where = f"schema of {self.path}"
        if type_ == "table":
            parse_section(_NoSettings, settings, where)
            return table.schema()
        if type_ == "file":
            file = parse_section(_SchemaFile, settings, where)
            data = open_storage(parent_folder(file.path) or ".", dict(file.storage_options)).read(file_name(file.path))
            if data is None:
                raise InvalidRequest(f"{where}: there is no file {file.path}")
            return avro_to_arrow(data.decode("utf-8", "replace"))
        if type_ == "registry":
            subject = settings.pop("subject", None)
            if not isinstance(subject, str):
                raise InvalidRequest(f"{where} has no subject, which kind registry needs")
            return avro_to_arrow(parse_section(SchemaRegistry, settings, where).latest(subject))
        raise InvalidRequest(f"{where} has kind={type_!r}: choose from {', '.join(_SCHEMAS)}{nearest(str(type_), _SCHEMAS)}")


@dataclass(frozen=True, slots=True)
class _NoSettings:
    """No settings besides the kind."""


@dataclass(frozen=True, slots=True)
class _SchemaFile:
    """An Avro schema as JSON."""

    path: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class JobConfig:
    """A job.

    Attributes:
        tables: Its tables.
        continuous: Read until the job is stopped, not only until no source has new rows.
        poll_seconds: Pause of a table without new rows, if continuous.
        threads: Number of tables that are ingested at the same time.
        retries: Number of retries after a failure that may pass, such as an unavailable store, in a row.
        retry_seconds: Pause before the first retry; it doubles with each one.
    """

    tables: tuple[TableJob, ...]
    continuous: bool = False
    poll_seconds: float = 10.0
    threads: int = 4
    retries: int = 3
    retry_seconds: float = 5.0

    def __post_init__(self) -> None:
        if not self.tables:
            raise InvalidRequest("the job has no table: add a section [[table]]")
        if self.poll_seconds <= 0 or self.retry_seconds < 0 or self.threads < 1 or self.retries < 0:
            raise InvalidRequest(
                "the job needs poll_seconds above 0, threads of 1 or more, retries and retry_seconds of 0 or more"
            )
        paths = [table.path.rstrip("/") for table in self.tables]
        twice = next((path for place, path in enumerate(paths) if path in paths[:place]), None)
        if twice is not None:
            raise InvalidRequest(f"the job has table {twice} twice: a table stores the checkpoint of one source")


def load_config(source: str | os.PathLike[str] | Mapping[str, object]) -> JobConfig:
    """Read the configuration of a job.

    Args:
        source: A TOML file; or a mapping with its keys, or with those of its only table.

    Raises:
        InvalidRequest: A key or a value is unknown, or one is missing.
    """
    if isinstance(source, Mapping):
        document: Mapping[str, object] = source
        where = "the job"
    else:
        where = os.fspath(source)
        document = read_toml(where, "job")
    settings = dict(document)
    tables = settings.pop("table", None)
    if tables is None and "path" in settings:
        names = {field.name for field in dataclasses.fields(JobConfig)} - {"tables"}
        tables = [{key: value for key, value in settings.items() if key not in names}]
        settings = {key: value for key, value in settings.items() if key in names}
    if not isinstance(tables, Sequence) or isinstance(tables, str):
        raise InvalidRequest(f"{where} has no section [[table]]{_nearest_key(settings, ('table',))}")
    return parse_section(JobConfig, settings, where, {"tables": tuple(_table_job(table, where) for table in tables)})


def _table_job(settings: object, where: str) -> TableJob:
    if not isinstance(settings, Mapping):
        raise InvalidRequest(f"{where}: table must be a section [[table]]")
    job = parse_section(TableJob, settings, f"table {settings.get('path', '')} of {where}")
    source = job.source
    if isinstance(source, Mapping):
        type_ = source.get("kind")
        if type_ not in SOURCES:
            raise InvalidRequest(
                f"source of {job.path} has kind={type_!r}: choose from {', '.join(SOURCES)}{nearest(str(type_), SOURCES)}"
            )
    elif not isinstance(source, Source):
        raise InvalidRequest(f"source of {job.path} must have a kind, or be an object with the method read")
    return dataclasses.replace(
        job, source=resolved(source), transforms=tuple(_transform(one, job.path) for one in job.transforms)
    )


def _transform(settings: object, path: str) -> SqlTransform | FunctionTransform:
    if callable(settings):
        return FunctionTransform(settings, getattr(settings, "__name__", type(settings).__name__))
    if isinstance(settings, Mapping) and len(settings) == 1:
        ((key, value),) = settings.items()
        if key == "sql" and isinstance(value, str):
            return SqlTransform(value)
        if key == "sql_file" and isinstance(value, str):
            try:
                with open(os.path.expanduser(value), encoding="utf-8") as file:
                    return SqlTransform(file.read())
            except OSError as error:
                raise InvalidRequest(f"transform of {path}: the file {value} cannot be read: {error.strerror}") from error
        if key == "function" and isinstance(value, str):
            return FunctionTransform(load_function(value), value)
        raise InvalidRequest(
            f"a transform of {path} has the unknown key {key!r}{nearest(str(key), ('sql', 'sql_file', 'function'))}"
        )
    raise InvalidRequest(f"a transform of {path} must be sql, sql_file or function, with a text")


def _nearest_key(settings: Mapping[str, object], known: Sequence[str]) -> str:
    for name in settings:
        if difflib.get_close_matches(name, known, n=1, cutoff=0.6):
            return f"; {name!r} is unknown"
    return ""

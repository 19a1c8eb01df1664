"""State of a SQL session: options of SET, views, databases, and resolution of names in the current database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyhudi.errors import InvalidRequest
from pyhudi.options.scope import TABLE_OPTIONS
from pyhudi.options.supported import check_known, find_option, parse_options, warn_caller
from pyhudi.options.table_options import VERSION
from pyhudi.options.write_options import (
    BULK_INSERT_ENABLED,
    INSERT_MODE,
    INSERT_OPERATION,
    METADATA_PREFIX,
    OPERATION,
    OVERWRITE_MODE,
)
from pyhudi.sql_engine import sql_ast as S

DEFAULT_DATABASE = "default"
SPARK_CATALOG = "spark_catalog"
"""Name of the catalog of a session."""
SPARK_OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"
_SQL_ONLY = (OVERWRITE_MODE, SPARK_OVERWRITE_MODE, INSERT_OPERATION, INSERT_MODE, BULK_INSERT_ENABLED, OPERATION.key)
_INSERTS = ("insert", "upsert", "bulk_insert")
_OVERWRITES = ("insert_overwrite", "insert_overwrite_table")
_INSERT_MODES = ("upsert", "strict", "non-strict")
_MODES = ("STATIC", "DYNAMIC")


@dataclass(frozen=True, slots=True)
class View:
    """A view: its query, and names of the columns; () for those of the query."""

    text: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionState:
    """State of an embedded session.

    Attributes:
        settings: Options of SET.
        views: Views by qualified name in lower case.
        databases: Names of databases, in lower case, as written.
        read_optimized: Names in lower case by which queries read base files only.
        managed: Names in lower case of tables whose files DROP TABLE deletes.
        current: The current database, as the single element.
    """

    settings: dict[str, str] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    databases: dict[str, str] = field(default_factory=lambda: {DEFAULT_DATABASE: DEFAULT_DATABASE})
    read_optimized: set[str] = field(default_factory=set)
    managed: set[str] = field(default_factory=set)
    current: list[str] = field(default_factory=lambda: [DEFAULT_DATABASE])


@dataclass(frozen=True, slots=True)
class StatementOptions:
    """Options of a statement: those of SET, overridden by those of the call.

    Attributes:
        options: Options of reads and writes; None if there are none.
        dynamic_overwrite: INSERT OVERWRITE replaces only partitions of its rows (Spark's dynamic mode).
        insert_operation: Operation of INSERT INTO; None to choose it by the table.
        overwrite_operation: Operation of INSERT OVERWRITE; None to choose it by the statement.
        creation: Options of new tables.
    """

    options: Mapping[str, object] | None
    dynamic_overwrite: bool = False
    insert_operation: str | None = None
    overwrite_operation: str | None = None
    creation: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Mapping[str, str], options: Mapping[str, object] | None) -> StatementOptions:
        """Merge the options of a session and of a call."""
        named = {**settings, **{key: str(value) for key, value in (options or {}).items() if key in _SQL_ONLY}}

        def choice(key: str, values: tuple[str, ...], default: str | None = None) -> str | None:
            value = named.get(key, default)
            if value is not None and value.lower() not in map(str.lower, values):
                raise InvalidRequest(f"option {key}={value} is none of {', '.join(values)}")
            return value and value.lower()

        mode = choice(OVERWRITE_MODE, _MODES) or choice(SPARK_OVERWRITE_MODE, _MODES, "STATIC")
        # `options=` of a call names the operation of the write itself, which reports another one.
        operation = settings.get(OPERATION.key)
        overwrites = operation is not None and operation.lower() in _OVERWRITES
        chosen = choice(INSERT_OPERATION, _INSERTS) or (operation and operation.lower())
        if chosen is not None and chosen not in (*_INSERTS, *_OVERWRITES):
            raise InvalidRequest(
                f"option {OPERATION}={operation} is no operation of INSERT: {', '.join((*_INSERTS, *_OVERWRITES))}"
            )
        insert_mode = choice(INSERT_MODE, _INSERT_MODES)
        bulk_inserts = choice(BULK_INSERT_ENABLED, ("true", "false")) == "true"
        if chosen is None and insert_mode == "non-strict":
            chosen = "bulk_insert" if bulk_inserts else "insert"
        version = {key: value for key, value in settings.items() if find_option(key) == VERSION}
        return cls(
            merged_options(settings, options),
            mode == "dynamic",
            chosen,
            operation.lower() if overwrites and operation is not None else None,
            version,
        )


def defines_table(key: str) -> bool:
    """Return True for an option that is a property of a table, which its creation decides."""
    option = find_option(key)
    return option is not None and option in TABLE_OPTIONS and bool(option.stored_as)


def merged_options(settings: Mapping[str, str], options: Mapping[str, object] | None) -> Mapping[str, object] | None:
    """Return the options of a session, overridden by those of a call, without the ones that only SQL knows.

    Options of a session that define tables are left out: as in Hudi, an existing table decides.
    """
    of_session = {key: value for key, value in settings.items() if key not in _SQL_ONLY and not defines_table(key)}
    of_call = {key: value for key, value in (options or {}).items() if key not in _SQL_ONLY or key == OPERATION.key}
    if not of_session:
        return of_call or None
    parsed = parse_options(of_session, of_call)
    return {**dict(parsed.values), **dict(parsed.extra)}


def metadata_prefix(settings: Mapping[str, str]) -> str:
    """Return the prefix of keys of SET that become entries of commits; empty for none."""
    return settings.get(METADATA_PREFIX.key, METADATA_PREFIX.default or "")


def check_setting(key: str, value: str, settings: Mapping[str, str]) -> None:
    """Raise InvalidRequest for an option of SET that is unknown, with the nearest name, or has an illegal value.

    Args:
        settings: Options of the session.
    """
    if key in _SQL_ONLY:
        StatementOptions.of({key: value}, None)
        return
    prefix = metadata_prefix(settings)
    if prefix and key.startswith(prefix) and not key.startswith(("hoodie.", "pyhudi.")):
        return
    check_known(key)
    parse_options({key: value})
    if defines_table(key) and find_option(key) != VERSION:
        warn_caller(f"SET {key} has no effect in SQL, as in Hudi: name it in TBLPROPERTIES of CREATE TABLE")


def qualified(name: S.TableName, current: str) -> S.TableName:
    """Resolve a name in the current database. Tables of the default database have no qualifier, nor has Spark's catalog."""
    parts = name.parts
    if name.path is None and len(parts) > 1 and parts[0].lower() == SPARK_CATALOG:
        return qualified(S.TableName(parts[1:]), current)
    if name.path is None and len(parts) == 1 and current != DEFAULT_DATABASE:
        return S.TableName((*current.split("."), *parts))
    if name.path is None and len(parts) == 2 and parts[0].lower() == DEFAULT_DATABASE:
        return S.TableName(parts[1:])
    return name

"""State of a SQL session: options of SET, views, databases, and resolution of names in the current database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyhudi.errors import InvalidRequest
from pyhudi.options.supported import check_known, parse_options
from pyhudi.options.write_options import INSERT_OPERATION, METADATA_PREFIX, OPERATION, OVERWRITE_MODE
from pyhudi.sql_engine import sql_ast as S

DEFAULT_DATABASE = "default"
SPARK_CATALOG = "spark_catalog"
"""Name of the catalog of a session."""
SPARK_OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"
_SQL_ONLY = (OVERWRITE_MODE, SPARK_OVERWRITE_MODE, INSERT_OPERATION, OPERATION.key)
_INSERTS = ("insert", "upsert", "bulk_insert")
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
    """

    options: Mapping[str, object] | None
    dynamic_overwrite: bool = False
    insert_operation: str | None = None

    @classmethod
    def of(cls, settings: Mapping[str, str], options: Mapping[str, object] | None) -> StatementOptions:
        """Merge the options of a session and of a call."""
        named = {**settings, **{key: str(value) for key, value in (options or {}).items() if key in _SQL_ONLY}}
        mode = named.get(OVERWRITE_MODE, named.get(SPARK_OVERWRITE_MODE, "STATIC"))
        if mode.upper() not in _MODES:
            raise InvalidRequest(f"option {OVERWRITE_MODE}={mode} is neither STATIC nor DYNAMIC")
        operation = named.get(INSERT_OPERATION) or settings.get(OPERATION.key)
        if operation is not None and operation.lower() not in _INSERTS:
            raise InvalidRequest(f"option {INSERT_OPERATION}={operation} is none of {', '.join(_INSERTS)}")
        return cls(merged_options(settings, options), mode.upper() == "DYNAMIC", operation and operation.lower())


def merged_options(settings: Mapping[str, str], options: Mapping[str, object] | None) -> Mapping[str, object] | None:
    """Return the options of a session, overridden by those of a call, without the ones that only SQL knows."""
    of_session = {key: value for key, value in settings.items() if key not in _SQL_ONLY}
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

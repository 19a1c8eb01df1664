"""CREATE INDEX, DROP INDEX and SHOW INDEXES, with Hudi's syntax and names."""

from __future__ import annotations

import pyarrow as pa

from pyhudi.api.table import Table
from pyhudi.errors import InvalidRequest
from pyhudi.metadata_table.codecs.metadata_partitions import (
    EXPRESSION_INDEX_PREFIX,
    FILES,
    SECONDARY_INDEX_PREFIX,
    MetadataPartitionType,
)
from pyhudi.metadata_table.reader.stored_index_definitions import load_index_definitions
from pyhudi.operations.services.index_admin import IndexInfo
from pyhudi.options.index_options import METADATA_INDEX_COLUMN_STATS_ENABLE
from pyhudi.records.sql_functions import COLUMN_FUNCTIONS
from pyhudi.sql_engine.sql_ast import CreateIndex, DropIndex, RefreshIndex
from pyhudi.sql_engine.table_statements import resolve_table_column

_RECORD_INDEX = MetadataPartitionType.RECORD_INDEX.value
_SECONDARY_INDEX = MetadataPartitionType.SECONDARY_INDEX.value
_EXPRESSION_KINDS = ("column_stats", "bloom_filters")
_IDENTITY = "identity"


def create_index(table: Table, statement: CreateIndex) -> None:
    """Create an index. Without USING, `record_index` is the record index, other names are secondary indexes.

    Raises:
        InvalidRequest: The columns or options do not define an index, or it exists.
    """
    columns = [resolve_table_column(table, name) for name in statement.columns]
    call_options = {key: value for key, value in statement.options if key.startswith(("hoodie.", "pyhudi."))}
    options = {_option_name(key): value for key, value in statement.options if key not in call_options}
    keys = table.config.keys.record_fields
    index_type = statement.kind
    if index_type in (None, _RECORD_INDEX, _SECONDARY_INDEX):
        covers_key = set(columns) == set(keys)
        named_record = statement.name == _RECORD_INDEX or index_type == _RECORD_INDEX
        if named_record and not covers_key:
            raise InvalidRequest(
                f"CREATE INDEX {statement.name} ON {statement.table}: the record index covers the record key fields "
                f"({', '.join(keys) or 'none: the table generates its keys'}), not {', '.join(columns)}"
            )
        if index_type is None and covers_key and not named_record:
            raise InvalidRequest(
                f"CREATE INDEX {statement.name} ON {statement.table}: an index of the record key is a record index, whose name "
                f"is {_RECORD_INDEX}"
            )
        index_type = _RECORD_INDEX if named_record else _SECONDARY_INDEX
    if _find(table, statement.name) is not None or (index_type == _RECORD_INDEX and _find(table, _RECORD_INDEX) is not None):
        if statement.if_not_exists:
            return
        raise InvalidRequest(f"CREATE INDEX {statement.name} ON {statement.table}: the index exists already")
    if index_type in _EXPRESSION_KINDS:
        function = options.pop("expr", _IDENTITY)
        if len(columns) != 1 or (index_type == "column_stats" and function == _IDENTITY):
            raise InvalidRequest(
                f"CREATE INDEX {statement.name} ON {statement.table} USING {index_type} takes one column and OPTIONS (expr = "
                f"'function'). Statistics of plain columns are kept by {METADATA_INDEX_COLUMN_STATS_ENABLE}=true"
            )
        table.index.create(
            index_type,
            columns[0],
            name=statement.name,
            function=function,
            function_options=options or None,
            options=call_options,
        )
        return
    if options:
        raise InvalidRequest(f"CREATE INDEX {statement.name}: option {next(iter(options))} has no effect on a {index_type}")
    if index_type == _RECORD_INDEX:
        table.index.create(index_type, options=call_options)
    else:
        table.index.create(index_type, columns, name=statement.name, options=call_options)


def _option_name(key: str) -> str:
    """Return the declared spelling of an option of an index function; names match regardless of case."""
    names = {option.name.lower(): option.name for function in COLUMN_FUNCTIONS.values() for option in function.options}
    return names.get(key.lower(), key.lower())


def drop_index(table: Table, statement: DropIndex) -> None:
    """Drop an index, named as in CREATE INDEX or as in SHOW INDEXES. Raises InvalidRequest if it does not exist."""
    info = _find(table, statement.name)
    if info is not None:
        table.index.drop(info.name)
    elif not statement.if_exists:
        raise _no_index(table, f"DROP INDEX {statement.name} ON {statement.table}")


def refresh_index(table: Table, statement: RefreshIndex) -> None:
    """REFRESH INDEX, which has nothing to do: each write updates the index. Raises InvalidRequest if it does not exist."""
    if _find(table, statement.name) is None:
        raise _no_index(table, f"REFRESH INDEX {statement.name} ON {statement.table}")


def _no_index(table: Table, statement: str) -> InvalidRequest:
    names = ", ".join(info.name for info in _listed(table)) or "none"
    return InvalidRequest(f"{statement}: no such index; the table has {names}")


def shown_indexes(table: Table) -> pa.Table:
    """Indexes in the columns of Hudi's SHOW INDEXES."""
    infos = _listed(table)
    definitions = load_index_definitions(table.context)
    kinds = [definitions[info.name].kind if info.name in definitions else info.kind for info in infos]
    # As in Hudi, only indexes of CREATE INDEX list their columns.
    prefixes = (SECONDARY_INDEX_PREFIX, EXPRESSION_INDEX_PREFIX)
    columns = [",".join(info.columns) if info.name.startswith(prefixes) else "" for info in infos]
    return pa.table(
        {
            "index_name": pa.array([info.name for info in infos], pa.string()),
            "index_type": pa.array(kinds, pa.string()),
            "col_name": pa.array(columns, pa.string()),
        }
    )


def _listed(table: Table) -> list[IndexInfo]:
    return [info for info in table.index.list() if info.name != FILES]


def _find(table: Table, name: str) -> IndexInfo | None:
    names = (name, SECONDARY_INDEX_PREFIX + name, EXPRESSION_INDEX_PREFIX + name)
    return next((info for info in _listed(table) if info.name in names), None)

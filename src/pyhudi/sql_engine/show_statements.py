"""SHOW TBLPROPERTIES, SHOW COLUMNS and DESCRIBE of a table, in the rows of Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from pyhudi.api.table import Table
from pyhudi.format.meta_columns import META_COLUMNS
from pyhudi.format.properties import redact_secret
from pyhudi.operations.admin.stored_settings import COMMENT_PROPERTY
from pyhudi.records.keys.key_spec import partition_columns
from pyhudi.sql_engine import sql_ast as S
from pyhudi.sql_engine.session_state import DEFAULT_DATABASE, SPARK_CATALOG
from pyhudi.sql_engine.sql_types import COMMENT, column_type_name
from pyhudi.sql_engine.table_statements import resolve_table_column, write_order
from pyhudi.table.table_config import TableConfig


def table_properties(table: Table, statement: S.ShowProperties) -> pa.Table:
    """`hoodie.properties` as rows of key and value."""
    properties = {key: redact_secret(key, value) for key, value in table.config.properties}
    if statement.key is not None:
        value = properties.get(statement.key, f"Table {statement.table} does not have property: {statement.key}")
        return pa.table({"key": [statement.key], "value": [value]})
    return key_value_rows(properties)


def key_value_rows(values: Mapping[str, str]) -> pa.Table:
    """Rows of key and value, in the order of the keys."""
    keys = sorted(values)
    return pa.table({"key": pa.array(keys, pa.string()), "value": pa.array([values[key] for key in keys], pa.string())})


def described(table: Table, name: S.TableName, *, extended: bool = False, managed: bool = False) -> pa.Table:
    """Columns in the rows of Spark's DESCRIBE, meta columns first, partition columns, and details of the table.

    Args:
        table: The table.
        name: Its name.
        extended: Add the details.
        managed: DROP TABLE deletes the files.
    """
    config, columns = table.config, _described_columns(table)
    rows = [(column.name, column_type_name(column), _column_comment(column)) for column in columns]
    places = partition_columns(config.keys)
    if places:
        types = {column_name: type_ for column_name, type_, _ in rows}
        rows += [("# Partition Information", "", ""), ("# col_name", "data_type", "comment")]
        rows += [(place, types.get(place, ""), None) for place in places]
    if extended:
        *database, last = (table.name,) if name.path is not None else name.parts
        properties = {"primaryKey": ",".join(config.keys.record_fields), "preCombineField": ",".join(config.ordering_fields)}
        listed = ", ".join(f"{key}={value}" for key, value in properties.items() if value)
        details = {
            "Catalog": SPARK_CATALOG if len(database) < 2 else database[0],
            "Database": ".".join(database[-1:]) or DEFAULT_DATABASE,
            "Table": last,
            "Type": "MANAGED" if managed else "EXTERNAL",
            "Provider": "hudi",
            "Comment": config.property(COMMENT_PROPERTY),
            "Table Properties": f"[{', '.join(filter(None, (listed, f'type={_type_name(config)}')))}]",
            "Location": table.uri,
        }
        rows += [("", "", ""), ("# Detailed Table Information", "", "")]
        rows += [(key, value, "") for key, value in details.items() if value]
    return _text_rows(("col_name", "data_type", "comment"), rows)


def _described_columns(table: Table) -> list[pa.Field]:
    """Columns in the order of DESCRIBE: meta columns first, partition columns last."""
    schema = table.schema(meta_columns=True)
    return [schema.field(name) for name in (*filter(META_COLUMNS.__contains__, schema.names), *write_order(table))]


def _column_comment(column: pa.Field) -> str | None:
    comment = (column.metadata or {}).get(COMMENT)
    return None if comment is None else comment.decode()


def _type_name(config: TableConfig) -> str:
    return "cow" if config.is_cow else "mor"


def _text_rows(names: Sequence[str], rows: Sequence[tuple[str | None, ...]]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else ((),) * len(names)
    return pa.table({name: pa.array(column, pa.string()) for name, column in zip(names, columns, strict=True)})


def column_names(table: Table) -> pa.Table:
    """Names of the columns, as SHOW COLUMNS lists them."""
    return _text_rows(("col_name",), [(column.name,) for column in _described_columns(table)])


def described_column(table: Table, name: str) -> pa.Table:
    """One column, in the rows of Spark's DESCRIBE of a column."""
    column = table.schema(meta_columns=True).field(name if name in META_COLUMNS else resolve_table_column(table, name))
    comment = _column_comment(column)
    rows = [("col_name", column.name), ("data_type", column_type_name(column)), ("comment", comment or "NULL")]
    return _text_rows(("info_name", "info_value"), rows)

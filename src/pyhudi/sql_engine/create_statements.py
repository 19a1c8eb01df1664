"""CREATE TABLE and SHOW CREATE TABLE, identically on every engine."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

import pyarrow as pa

from pyhudi.api.table import Table
from pyhudi.api.write_function import table_columns
from pyhudi.errors import InvalidRequest
from pyhudi.format.properties import redact_secret
from pyhudi.operations.admin.option_consistency import check_against_table, check_same_keys
from pyhudi.operations.admin.stored_settings import (
    COMMENT_PROPERTY,
    column_default,
    column_defaults,
    table_constraints,
)
from pyhudi.operations.admin.table_definition import MERGE_RULE, creation_options
from pyhudi.operations.admin.table_settings import parse_table_type
from pyhudi.options.scope import TABLE_OPTIONS
from pyhudi.options.supported import (
    SUPPORTED,
    check_known,
    find_option,
    is_known_or_misspelled,
    parse_options,
    storable_option,
    warn_caller,
)
from pyhudi.options.sync_options import READ_OPTIMIZED_PROPERTY
from pyhudi.options.table_options import (
    DEFAULT_PREFIX,
    HIVE_STYLE,
    MERGE_MODE,
    NAME,
    OPTION_PREFIX,
    ORDERING,
    PARTITION_FIELDS,
    PAYLOAD,
    RECORD_KEY_FIELDS,
    SLASH_DATES,
    STRATEGY_ID,
    TABLE_TYPE,
    USER_PREFIX,
)
from pyhudi.records.assignments import parse_literal
from pyhudi.records.keys.key_spec import partition_columns
from pyhudi.records.sql_quoting import quote_text
from pyhudi.sql_engine import sql_ast as S
from pyhudi.sql_engine.session_state import StatementOptions
from pyhudi.sql_engine.sql_types import COMMENT, backquoted, column_type_text, field
from pyhudi.sql_engine.table_statements import without_meta, write_order

_NAMED = {
    "primaryKey": RECORD_KEY_FIELDS.key,
    "type": TABLE_TYPE.key,
    "preCombineField": ORDERING.key,
    "preCombine": ORDERING.key,
    "orderingFields": ORDERING.key,
    "payloadClass": PAYLOAD.key,
    "recordMergeMode": MERGE_MODE.key,
    "recordMergeStrategyId": STRATEGY_ID.key,
}
"""Short names of table properties in Hudi's SQL; the case does not matter."""

_SHORT = {name.lower(): option for name, option in _NAMED.items()}

_MEANT = {
    **{name.lower().rstrip("s"): name for name in _NAMED},
    "recordkey": "primaryKey",
    "recordkeyfield": "primaryKey",
    "precombinekey": "preCombineField",
    "tabletype": "type",
}
"""Short names by what users write, in lower case, without other characters than letters and without plural."""

_IGNORED = {"precombinekey": "preCombineField", "tabletype": "type"}
"""Names that Hudi stores without effect, in lower case, and the short names that users mean by them."""

_MISSPELLABLE = [name for name in _MEANT if name != "type"]

_SHORT_NAMES = {TABLE_TYPE.key: "type", RECORD_KEY_FIELDS.key: "primaryKey", ORDERING.key: "preCombineField"}
"""Short names that SHOW CREATE TABLE prints, by option."""

_HIVE_STYLE = HIVE_STYLE.stored_as


def added_columns(statement: S.CreateTable) -> tuple[S.ColumnDefinition, ...]:
    """Columns of a new table in table order: partition columns come last, as in Spark.

    Raises:
        InvalidRequest: A column occurs twice, or a partition column does not exist.
    """
    by_name: dict[str, S.ColumnDefinition] = {}
    for column in statement.columns:
        if column.name.lower() in by_name:
            raise InvalidRequest(f"CREATE TABLE {statement.table} names column {column.name} twice")
        if column.position or "." in column.name:
            raise InvalidRequest(
                f"CREATE TABLE {statement.table}: column {column.name} must have no position, and no dots in its name"
            )
        by_name[column.name.lower()] = column
    if not by_name:
        return ()
    last = [name.lower() for name in statement.partitioned_by]
    missing = [name for name in statement.partitioned_by if name.lower() not in by_name]
    if missing:
        raise InvalidRequest(f"CREATE TABLE {statement.table} is PARTITIONED BY {missing[0]}, which is not one of its columns")
    return (*(column for name, column in by_name.items() if name not in last), *(by_name[name] for name in last))


def _field(column: S.ColumnDefinition) -> pa.Field:
    return field(column.name, column.type, nullable=column.nullable, comment=column.comment, hudi_type=column.hudi_type)


def new_options(statement: S.CreateTable, columns: Iterable[str], defaults: Mapping[str, str]) -> dict[str, object]:
    """Options of a new table, from its properties, its partitioning and defaults.

    Raises:
        InvalidRequest: PARTITIONED BY contradicts a property, or a default does not fit its column.
            An option is unknown, or a table must not store it.
    """
    options: dict[str, object] = {**defaults}
    if statement.comment is not None:
        options[USER_PREFIX + COMMENT_PROPERTY] = statement.comment
    for column in statement.columns:
        if column.default is not None:
            parse_literal(column.default, pa.field(column.name, column.type))
            options[DEFAULT_PREFIX + column.name] = column.default
    for key, value in statement.properties:
        if key != READ_OPTIMIZED_PROPERTY:
            options |= _property_options(statement, key, value, columns)
    _check_slash_dates(statement, options)
    if statement.partitioned_by:
        named = ",".join(_resolve_column(name, columns) for name in statement.partitioned_by)
        stated = str(options.setdefault(PARTITION_FIELDS.key, named))
        if _field_names(stated) != named.split(","):
            raise InvalidRequest(f"CREATE TABLE {statement.table}: PARTITIONED BY and property {PARTITION_FIELDS} disagree")
    elif set(_field_names(str(options.get(PARTITION_FIELDS.key, "")))) <= set(columns):
        # The clause cannot name a field of a struct.
        raise InvalidRequest(f"CREATE TABLE {statement.table}: use PARTITIONED BY instead of property {PARTITION_FIELDS}")
    parse_options(options)
    return options


def _property_options(statement: S.CreateTable, key: str, value: str, columns: Iterable[str]) -> dict[str, object]:
    """The option of a new table that a property of its statement sets; none for a property without effect. Raises as
    `new_options`.
    """
    option = find_option(_SHORT.get(key.lower(), key))
    what = f"CREATE TABLE {statement.table}"
    if option is None:
        if key.lower() == "path":
            raise InvalidRequest(f"{what}: write LOCATION '{value}' instead of property path")
        if key.startswith(("hoodie.", "pyhudi.")):
            if not (key.startswith("pyhudi.") or is_known_or_misspelled(key)):
                warn_caller(f"{what}: property {key} is unknown, and has no effect")
                return {}
            check_known(key)
            return {key: value}
        if meant := _IGNORED.get(key.lower()):
            warn_caller(f"{what}: property {key} has no effect, as in Hudi. Write {meant}")
        elif meant := _meant_name(key):
            raise InvalidRequest(f"{what}: unknown property {key!r}: did you mean {meant}?")
        return {USER_PREFIX + key: value}
    if option == NAME and statement.table.path is None:
        # As in Hudi, the table has the name of the statement.
        return {}
    if option not in TABLE_OPTIONS:
        name, checked = storable_option(key, value)
        return {OPTION_PREFIX + name: checked}
    if option == TABLE_TYPE:
        value = parse_table_type(value)
    elif option in (RECORD_KEY_FIELDS, ORDERING):
        value = ",".join(_resolve_column(part.strip(), columns) for part in value.split(","))
    return {option.key: value}


def _check_slash_dates(statement: S.CreateTable, options: dict[str, object]) -> None:
    """Remove the default of Hive-style paths from options with slash-separated dates; Hudi refuses both together."""
    if str(options.get(SLASH_DATES.key)).lower() != "true":
        return
    if any(find_option(key) is HIVE_STYLE and value.lower() == "true" for key, value in statement.properties):
        raise InvalidRequest(
            f"CREATE TABLE {statement.table}: slash-separated dates have no names of columns in paths; remove {HIVE_STYLE}"
        )
    options.pop(_HIVE_STYLE, None)


def _meant_name(key: str) -> str | None:
    """The short name that a property misspells; None for any other property. A table without its key would have duplicates."""
    plain = re.sub(r"[^a-z]", "", key.lower()).rstrip("s")
    near = [plain] if plain in _MEANT else difflib.get_close_matches(plain, _MISSPELLABLE, n=1, cutoff=0.9)
    return _MEANT[near[0]] if near else None


def creation_defaults(settings: StatementOptions) -> dict[str, str]:
    """Options of new tables that their statements can replace: paths in Hive style, and those of the session."""
    return {_HIVE_STYLE: "true", **settings.creation}


def create(
    statement: S.CreateTable,
    path: str,
    storage_options: Mapping[str, str] | None,
    *,
    exist_ok: bool,
    defaults: Mapping[str, str],
) -> Table:
    """Create an empty table.

    exist_ok: open an existing table if it has the same definition. defaults: as in `new_options`.
    """
    columns = added_columns(statement)
    if not columns:
        return _name_existing(statement, path, storage_options)
    schema = pa.schema([_field(one) for one in columns])
    return Table.create(
        path,
        name=None if statement.table.path else statement.table.parts[-1],
        schema=schema,
        storage_options=storage_options,
        options=new_options(statement, schema.names, defaults),
        exist_ok=exist_ok,
    )


def _name_existing(statement: S.CreateTable, path: str, storage_options: Mapping[str, str] | None) -> Table:
    """Open a table for a new name. The table stores options and user properties of the statement.

    Raises:
        InvalidRequest: A property contradicts the table.
    """
    table = Table(path, storage_options)
    columns = table_columns(path, storage_options)
    options = new_options(statement, () if columns is None else columns.names, {})
    stored = {key: str(value) for key, value in options.items() if key.startswith((OPTION_PREFIX, USER_PREFIX))}
    check_against_table(parse_options({key: value for key, value in options.items() if key not in stored}), table.config)
    changes = {key.removeprefix(USER_PREFIX): value for key, value in stored.items()}
    changes = {key: value for key, value in changes.items() if table.config.property(key) != value}
    if changes:
        table.set_properties(changes)
    return table


def is_read_optimized(statement: S.CreateTable) -> bool:
    """Return True if the statement creates a name for read optimized queries, as Hudi's catalog sync does."""
    return dict(statement.properties).get(READ_OPTIMIZED_PROPERTY, "false").strip().lower() == "true"


def check_existing(statement: S.CreateTable, table: Table) -> None:
    """Raise TableExists if CREATE TABLE IF NOT EXISTS names another record key or partitioning than the table has."""
    if statement.columns or statement.properties or statement.partitioned_by:
        explicit = parse_options(new_options(statement, [column.name for column in statement.columns], {}))
        check_same_keys(explicit, table.config, table.uri)


_OF_CALLERS = {key for key, option in SUPPORTED.items() if option.origin == "caller"}


def create_like(
    statement: S.CreateTable, source: Table, path: str, storage_options: Mapping[str, str] | None, *, exist_ok: bool
) -> Table:
    """Create an empty table with the columns, properties and constraints of another one. Properties of the statement win.

    exist_ok: as in `create`.
    """
    schema, copied = source.schema(), creation_options(source.config)
    # The creator does not vouch for options that only callers may set.
    copied = {key: value for key, value in copied.items() if key.removeprefix(OPTION_PREFIX) not in _OF_CALLERS}
    named = new_options(statement, schema.names, {})
    merge_rule = {option.key for option in MERGE_RULE}
    if not merge_rule.isdisjoint(named):
        copied = {key: value for key, value in copied.items() if key not in merge_rule}
    table = Table.create(
        path,
        name=None if statement.table.path else statement.table.parts[-1],
        schema=schema,
        storage_options=storage_options,
        options={**copied, **named},
        exist_ok=exist_ok,
    )
    present = dict(table_constraints(table.config))
    for name, condition in table_constraints(source.config):
        if present.get(name) != condition:
            table.alter.add_constraint(name, condition)
    return table


def new_table_columns(statement: S.CreateTable, names: Iterable[str]) -> list[str]:
    """Columns of CREATE TABLE ... AS in table order, from the columns of its query without meta columns.

    Raises:
        InvalidRequest: The query lacks a partition column, or the statement defines columns.
    """
    if statement.columns:
        raise InvalidRequest(f"CREATE TABLE {statement.table} ... AS takes its columns from the query: remove the column list")
    given = without_meta(names)
    last = [_resolve_column(name, given) for name in statement.partitioned_by]
    missing = [name for name in last if name not in given]
    if missing:
        raise InvalidRequest(f"CREATE TABLE {statement.table} is PARTITIONED BY {missing[0]}, which is not a column of its query")
    return [*(name for name in given if name not in last), *last]


def _field_names(partition_fields: str) -> list[str]:
    """The names of partition fields, which may have a type after a colon."""
    return [field.partition(":")[0].strip() for field in partition_fields.split(",")]


def _resolve_column(name: str, columns: Iterable[str]) -> str:
    """Resolve a column name case-insensitively."""
    return next((column for column in columns if column.lower() == name.lower()), name)


def _default_text(table: Table, column: pa.Field) -> str:
    """The default of a column as Spark SQL, where a backslash is an escape. Raises CorruptData if it is no literal."""
    column_default(table.config, column)
    return column_defaults(table.config)[column.name].replace("\\", "\\\\")


def creation_text(table: Table, name: S.TableName) -> str:
    """CREATE TABLE statement that creates an empty table with the columns and properties of this one.

    Constraints and indexes are not part of it, and values of secrets are redacted.
    """
    schema, defaults, config = table.schema(), column_defaults(table.config), table.config
    lines = []
    for column in (schema.field(name) for name in write_order(table)):
        comment = (column.metadata or {}).get(COMMENT)
        parts = [f"  {backquoted(column.name)} {column_type_text(column)}"]
        parts += [] if column.nullable else ["NOT NULL"]
        parts += [f"DEFAULT {_default_text(table, column)}"] if column.name in defaults else []
        parts += [] if comment is None else [f"COMMENT {quote_text(comment.decode())}"]
        lines.append(" ".join(parts))
    places = partition_columns(config.keys)
    if not set(places) <= set(schema.names):
        places = ()
    properties = {} if config.keys.slash_dates else {HIVE_STYLE.key: "false"}
    for key, value in creation_options(config).items():
        printed = None if key == HIVE_STYLE.key and config.keys.slash_dates else _printed_property(key)
        is_clause = key == USER_PREFIX + COMMENT_PROPERTY or (key == PARTITION_FIELDS.key and value == ",".join(places))
        if printed is not None and not is_clause:
            properties[printed] = redact_secret(printed, value)
    text = f"CREATE TABLE {'.'.join(map(backquoted, name.parts))} (\n" + ",\n".join(lines) + ")\nUSING hudi\n"
    text += f"PARTITIONED BY ({', '.join(map(backquoted, places))})\n" if places else ""
    comment_text = config.property(COMMENT_PROPERTY)
    text += f"COMMENT {quote_text(comment_text)}\n" if comment_text else ""
    text += "" if name.path is not None else f"LOCATION {quote_text(table.uri)}\n"
    listed = ",\n".join(f"  {quote_text(key)} = {quote_text(value)}" for key, value in sorted(properties.items()))
    return f"{text}TBLPROPERTIES (\n{listed})"


def _printed_property(option: str) -> str | None:
    """The table property that sets an option of a creation; None for one that is part of a column."""
    if option.startswith(DEFAULT_PREFIX):
        return None
    for prefix in (OPTION_PREFIX, USER_PREFIX):
        if option.startswith(prefix):
            name = option.removeprefix(prefix)
            # The name of a user property can have another meaning in a statement.
            is_meaningful = name.lower() == "path" or find_option(name) is not None or _meant_name(name) is not None
            is_ambiguous = prefix == USER_PREFIX and is_meaningful
            return option if is_ambiguous else name
    return _SHORT_NAMES.get(option, option)

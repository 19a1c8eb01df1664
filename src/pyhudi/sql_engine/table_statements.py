"""Execution of statements on tables, identical on every engine: inserts, columns, partitions, procedure arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi import features
from pyhudi.api.table import Filter, Scan, Table
from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.meta_columns import META_COLUMNS
from pyhudi.format.paths import parent_folder
from pyhudi.operations.admin import add_partitions as admin
from pyhudi.operations.admin.stored_settings import (
    column_default,
    column_defaults,
)
from pyhudi.operations.commit.results import WriteResult
from pyhudi.options.read_options import AS_OF
from pyhudi.options.table_options import (
    DEFAULT_PREFIX,
)
from pyhudi.options.write_options import STATIC_PARTITIONS
from pyhudi.records.assignments import parse_literal
from pyhudi.records.keys.key_spec import partition_columns
from pyhudi.records.keys.partition_paths import encode_partition_value, parse_partition_path, partition_paths
from pyhudi.records.store_assignment import names_in_order_of, store_column
from pyhudi.sql_engine import sql_ast as S
from pyhudi.sql_engine.session_state import StatementOptions

Alteration = S.AddColumns | S.DropColumns | S.RenameColumn | S.AlterColumn


# ---------------------------------------------------------------------------------------------------------------------
# Inserts


def write_order(table: Table) -> tuple[str, ...]:
    """Column order of INSERT by position: partition columns come last, as in Spark."""
    last = partition_columns(table.config.keys)
    names = table.schema().names
    return (*(name for name in names if name not in last), *(name for name in last if name in names))


def insert_columns(table: Table, statement: S.Insert, query: pa.Schema) -> tuple[tuple[str, ...], bool]:
    """Table columns to which the columns of an INSERT query are assigned, in the query's order.

    A statement without BY NAME and without a list of columns assigns by name if the query has the names of all columns,
    and by position otherwise.

    Args:
        query: Columns of the query, without meta columns.

    Returns:
        The columns, and whether fields of structs are assigned by name too.

    Raises:
        InvalidRequest: A column does not exist, is assigned twice or not at all, or PARTITION names a column that is
            not a partition column.
    """
    fixed = {one.column for one in static_partition_values(table, statement.partition)}
    for part in statement.partition:
        if resolve_table_column(table, part.column) not in partition_columns(table.config.keys):
            raise InvalidRequest(f"PARTITION names {part.column}, which is not a partition column of {table.uri}")
    names, schema = tuple(query.names), table.schema()
    if statement.by_name:
        given = tuple(resolve_table_column(table, name) for name in names)
    elif statement.columns is not None:
        given = tuple(resolve_table_column(table, name) for name in statement.columns)
    else:
        given = tuple(name for name in write_order(table) if name not in fixed)
        matched = names_in_order_of(query, pa.schema([schema.field(name) for name in given]))
        if matched is not None:
            return matched, True
    twice = [name for number, name in enumerate(given) if name in given[:number] or name in fixed]
    if twice:
        raise InvalidRequest(f"INSERT INTO {statement.table} assigns column {twice[0]} twice")
    if len(names) != len(given):
        raise InvalidRequest(
            f"INSERT INTO {statement.table} takes {len(given)} columns ({', '.join(given)}), but the query has {len(names)} "
            f"({', '.join(names)})"
        )
    return given, statement.by_name


def constant_values(table: Table, statement: S.Insert) -> dict[str, pa.Scalar]:
    """Values of columns that the query of an INSERT does not have: those of PARTITION, and defaults."""
    schema = table.schema()
    values = {name: column_default(table.config, schema.field(name)) for name in column_defaults(table.config)}
    for part in static_partition_values(table, statement.partition):
        values[part.column] = partition_scalar(part.value, schema.field(part.column))
    return values


def static_partition_values(table: Table, partition: tuple[S.PartitionValue, ...]) -> tuple[S.PartitionValue, ...]:
    """Parts of PARTITION (...) with a value, with resolved column names."""
    return tuple(S.PartitionValue(resolve_table_column(table, one.column), one.value) for one in partition if one.has_value)


def resolve_table_column(table: Table, name: str) -> str:
    """Resolve a column name case-insensitively. Raises InvalidRequest if it does not exist."""
    names = table.schema().names
    if name in names:
        return name
    matches = [known for known in names if known.lower() == name.lower()]
    if len(matches) != 1:
        what = "has no column" if not matches else "has several columns"
        raise InvalidRequest(f"{table.uri} {what} {name}; its columns are {', '.join(names)}")
    return matches[0]


def insert_operation(table: Table, statement: S.Insert, settings: StatementOptions) -> tuple[str, dict[str, str]]:
    """Write operation of an INSERT and its options.

    As in Hudi's SQL, INSERT INTO is an upsert if the table has a record key and an ordering field. INSERT OVERWRITE
    replaces, in static mode, the partitions that the values of PARTITION select, without values the table; in dynamic
    mode, the partitions of its rows.

    Raises:
        Unsupported: A partition path to replace contains a comma.
    """
    keys = table.config.keys
    if not statement.overwrite:
        default = "upsert" if table.config.ordering_fields and not keys.generates_keys else "insert"
        return settings.insert_operation or default, {}
    if settings.overwrite_operation == "insert_overwrite_table" or (settings.overwrite_operation and not statement.partition):
        return settings.overwrite_operation, {}
    values = static_partition_values(table, statement.partition)
    if not keys.partition_fields or not (values or settings.dynamic_overwrite):
        return "insert_overwrite_table", {}
    if settings.dynamic_overwrite and len(values) < len(partition_columns(keys)):
        return "insert_overwrite", {}
    selected = resolve_partitions(table, values)
    if any("," in path for path in selected):
        raise Unsupported(f"INSERT OVERWRITE {statement.table} PARTITION: a path has a comma ({', '.join(selected)})")
    return "insert_overwrite", {STATIC_PARTITIONS.key: ",".join(selected)} if selected else {}


def scan_rows(
    table: Table, columns: list[str], filter: Filter | None = None, as_of: str | None = None, *, read_optimized: bool
) -> Scan:
    """Scan a table for a query by a name, which may be read optimized."""
    if not read_optimized:
        return table.scan(columns, filter, as_of=as_of)
    return table.read_optimized(columns, filter, options=None if as_of is None else {AS_OF.key: as_of})


def without_meta(names: Iterable[str]) -> list[str]:
    """Column names without meta columns, such as those of SELECT * on another table."""
    return [name for name in names if name not in META_COLUMNS]


# ---------------------------------------------------------------------------------------------------------------------
# Columns and partitions


def alter(table: Table, statement: Alteration) -> None:
    """Change columns; each change is one commit. Raises Unsupported for the first position of the table, before any change."""
    positions: list[tuple[str, tuple[str | None, ...]]] = []
    if isinstance(statement, S.AddColumns):
        positions = [(column.name, column.position) for column in statement.columns]
    elif isinstance(statement, S.AlterColumn):
        positions = [(statement.column, statement.position)]
    if any(position == (None,) and "." not in name for name, position in positions):
        raise Unsupported("a column at position FIRST of the table, which Hudi rejects too; use AFTER")
    if isinstance(statement, S.AddColumns):
        for column in statement.columns:
            _add(table, column)
    elif isinstance(statement, S.DropColumns):
        for name in statement.columns:
            table.alter.drop(_spelled(table, name))
    elif isinstance(statement, S.RenameColumn):
        table.alter.rename(_spelled(table, statement.column), statement.to)
    else:
        name = _spelled(table, statement.column)
        known = _field_at(table.schema(), name)
        if statement.allows_nulls and (known is None or not known.nullable):
            table.alter.allow_nulls(name)
        has_type = known is not None and known.type == statement.type
        if statement.type is not None and not has_type:
            table.alter.retype(name, statement.type)
        if statement.comment is not None:
            table.alter.comment(name, statement.comment)
        if statement.position:
            table.alter.reorder(name, after=_sibling(table, statement.position[0]))


def set_properties(table: Table, statement: S.SetProperties) -> None:
    """Set or remove properties. Raises InvalidRequest for properties that define the table, and for missing ones to remove."""
    known = dict(table.config.properties)
    missing = [key for key, value in statement.properties if value is None and key not in known]
    if missing and not statement.if_exists:
        raise InvalidRequest(f"ALTER TABLE {statement.table} UNSET TBLPROPERTIES: property {missing[0]} does not exist")
    table.set_properties(dict(statement.properties))


def set_default(table: Table, statement: S.AlterDefault) -> None:
    """Set or remove the default of a column. Raises InvalidRequest if the column cannot hold it."""
    name, schema = resolve_table_column(table, statement.column), table.schema()
    if statement.default is not None:
        parse_literal(statement.default, schema.field(name))
    table.set_properties({DEFAULT_PREFIX + name: statement.default})


def _add(table: Table, column: S.ColumnDefinition) -> None:
    if not column.nullable:
        raise InvalidRequest(f"column {column.name} is NOT NULL, but existing rows have no value for it")
    if column.default is not None:
        raise Unsupported(f"ALTER TABLE ... ADD COLUMN {column.name} DEFAULT: a default would have to apply to existing rows")
    if column.hudi_type is not None:
        raise Unsupported(f"ALTER TABLE ... ADD COLUMN {column.name} {column.hudi_type}: write rows that have the column")
    after = _sibling(table, column.position[0]) if column.position else None
    table.alter.add(column.name, column.type, after=after, first=column.position == (None,), comment=column.comment)


def _sibling(table: Table, name: str | None) -> str | None:
    return None if name is None or "." in name else next((n for n in table.schema().names if n.lower() == name.lower()), name)


def _spelled(table: Table, name: str) -> str:
    """Resolve the first part of a column path case-insensitively."""
    first, dot, rest = name.partition(".")
    return resolve_table_column(table, first) + dot + rest


def _field_at(schema: pa.Schema, path: str) -> pa.Field | None:
    """Return the field of a column path, also of and below the entries of lists and maps; None if there is none."""
    siblings, match = list(schema), None
    for name in path.split("."):
        match = next((field for field in siblings if field.name == name), None)
        if match is None:
            return None
        type_ = match.type
        is_map = pa.types.is_map(type_)
        siblings = [type_.item_field] if is_map else [type_.field(index) for index in range(type_.num_fields)]
    return match


def resolve_partitions(table: Table, partition: tuple[S.PartitionValue, ...]) -> list[str]:
    """Paths of the partitions that PARTITION (...) selects; all partitions for an empty specification.

    Raises:
        InvalidRequest: A column is not a partition column.
        Unsupported: The columns are not a prefix of the partition columns.
    """
    every = _present_partitions(table)
    if not partition:
        return every
    fields, values = partition_columns(table.config.keys), _leading_values(table, partition)
    if len(values) < len(fields) and any("/" in str(value) for value in values.values()):
        raise Unsupported("PARTITION with some of the columns, and a value with a slash: name all columns")
    path = _partition_path(table, values)
    if len(values) == len(fields):
        return [one for one in every if one == path]
    for _ in fields[len(values) :]:
        path = parent_folder(path)
    return [one for one in every if one.startswith(f"{path}/")]


def _present_partitions(table: Table) -> list[str]:
    """Paths of the partitions with records, and of those that ADD PARTITION has created; none that a statement deleted."""
    found = table.inspect.partitions()
    is_present = pc.or_(pc.greater(found.column("file_slices"), 0), pc.equal(found.column("all_files"), 0))
    return found.filter(is_present).column("partition").to_pylist()


def _partition_path(table: Table, values: Mapping[str, S.Value]) -> str:
    """Path of the partition with these values of the partition columns; a missing value is null."""
    keys, schema = table.config.keys, table.schema()
    fields = partition_columns(keys)
    arrays = [pa.array([partition_scalar(values.get(name), schema.field(name))]) for name in fields]
    batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema([schema.field(name).with_nullable(True) for name in fields]))
    path: str = partition_paths(keys, batch)[0].as_py()
    return path


def add_partitions(table: Table, statement: S.AddPartitions) -> None:
    """Create partitions without rows. Raises InvalidRequest unless each has a value for all partition columns."""
    paths = []
    for partition in statement.partitions:
        values, fields = _partition_values(table, partition), partition_columns(table.config.keys)
        if len(values) < len(fields):
            raise InvalidRequest(
                f"ALTER TABLE {statement.table} ADD PARTITION: name all partition columns ({', '.join(fields)}), not only "
                f"{', '.join(values)}"
            )
        paths.append(_partition_path(table, values))
    admin.add_partitions(table.context, list(dict.fromkeys(paths)), exist_ok=statement.if_not_exists)


def repair(table: Table, statement: S.RepairTable) -> None:
    """MSCK REPAIR TABLE, which has nothing to do: partitions are listed from the table, not from a catalog.

    Raises InvalidRequest for a table without partitions.
    """
    if not table.config.keys.partition_fields:
        raise InvalidRequest(f"MSCK REPAIR TABLE {statement.table}: the table has no partitions")


def _leading_values(table: Table, partition: tuple[S.PartitionValue, ...]) -> dict[str, S.Value]:
    """Values of PARTITION (...) by column. Raises unless they are those of the first partition columns."""
    fields, values = partition_columns(table.config.keys), _partition_values(table, partition)
    if set(values) != set(fields[: len(values)]):
        raise Unsupported(f"PARTITION with {', '.join(values)} only; also name the columns before them: {', '.join(fields)}")
    return values


def _partition_values(table: Table, partition: tuple[S.PartitionValue, ...]) -> dict[str, S.Value]:
    """Values of PARTITION (...) by column. Raises InvalidRequest for a column that is no partition column."""
    fields = partition_columns(table.config.keys)
    values = {one.column: one.value for one in static_partition_values(table, partition)}
    unknown = [name for name in values if name not in fields]
    if unknown:
        raise InvalidRequest(f"{table.uri} is not partitioned by {unknown[0]}; it is by {', '.join(fields) or 'nothing'}")
    return values


def partition_scalar(value: S.Value, of: pa.Field) -> pa.Scalar:
    """Value of a partition column, in its type. Raises InvalidRequest if the type cannot hold it."""
    if value is None:
        return pa.scalar(None, of.type)
    try:
        return store_column(pa.array([value]), of.with_nullable(True), exact=not isinstance(value, str))[0]
    except (InvalidRequest, pa.ArrowException) as error:
        raise InvalidRequest(f"PARTITION ({of.name} = {value!r}): column {of.name} is of type {of.type}: {error}") from error


def empty_partitions(table: Table, partition: tuple[S.PartitionValue, ...]) -> WriteResult:
    """Delete the records of the selected partitions, or of the whole table, in one commit. `*` matches any characters."""
    if not partition and not table.config.keys.partition_fields:
        return table.insert_overwrite_table(table.schema().empty_table())
    if any(isinstance(one.value, str) and "*" in one.value for one in partition):
        return table.delete_partitions(_partition_pattern(table, partition))
    return table.delete_partitions(resolve_partitions(table, partition))


def _partition_pattern(table: Table, partition: tuple[S.PartitionValue, ...]) -> str:
    """Pattern of the paths of PARTITION (...) for `Table.delete_partitions`. Raises as `resolve_partitions`."""
    keys, values = table.config.keys, _leading_values(table, partition)
    fields = partition_columns(keys)
    texts = [str(values[name]) for name in fields[: len(values)]]
    if len(fields) > 1 and any("/" in text for text in texts):
        raise Unsupported("PARTITION with * and a slash in a value: name the partitions without *")
    if keys.slash_dates:
        texts = [text.replace("-", "/") for text in texts]
    if keys.url_encode:
        texts = ["*".join(map(encode_partition_value, text.split("*"))) for text in texts]
    if keys.hive_style:
        texts = [f"{name}={text}" for name, text in zip(fields, texts, strict=False)]
    return "/".join([*texts, *(["*"] if len(values) < len(fields) else [])])


def list_partitions(table: Table, statement: S.ShowPartitions) -> pa.Table:
    """Paths of the partitions, those with the values of PARTITION (...); none of a table that is not partitioned."""
    values = _partition_values(table, statement.partition)
    keys = table.config.keys
    paths = _present_partitions(table) if keys.partition_fields else []
    if values:
        positions = [position for position, name in enumerate(partition_columns(keys)) if name in values]

        def texts(path: str) -> list[str | None]:
            parsed = list(parse_partition_path(keys, path))
            return [parsed[position] for position in positions]

        wanted = texts(_partition_path(table, values))
        paths = [path for path in paths if texts(path) == wanted]
    return pa.table({"partition": pa.array(paths, pa.string())})


# ---------------------------------------------------------------------------------------------------------------------
# CALL


def call_arguments(statement: S.CallProcedure) -> dict[str, S.Value]:
    """Arguments of CALL by name. Unnamed arguments are assigned in the procedure's order.

    Raises:
        InvalidRequest: There are too many arguments, or a name occurs twice.
    """
    order = features.load("procedures", "CALL").positions(statement.procedure)
    if order is None:
        return dict(statement.arguments)
    if len(statement.positional) > len(order):
        raise InvalidRequest(f"CALL {statement.procedure} takes at most {len(order)} arguments: {', '.join(order)}")
    given = [*zip(order, statement.positional, strict=False), *statement.arguments]
    names = [name for name, _ in given]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InvalidRequest(f"CALL {statement.procedure} has argument {twice[0]} twice")
    return dict(given)


def called_table(arguments: Mapping[str, S.Value]) -> S.TableName | None:
    """Table in the argument `table => ...`, a name or a path."""
    given = arguments.get("table")
    if given is None:
        return None
    text = str(given)
    return S.TableName((text,) if "/" in text else tuple(text.split(".")))

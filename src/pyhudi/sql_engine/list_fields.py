"""Fields of lists of structs: `tips.amount` of a column ARRAY<STRUCT<amount: INT>> is the list of the amounts, as in Spark.

DuckDB has no such field access.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from sqlglot import exp


def rewrite_list_fields(tree: exp.Expr, sources: Iterable[pa.Schema]) -> None:
    """Replace field accesses on lists of structs by functions of DuckDB.

    Args:
        tree: The query, which is changed.
        sources: Columns of the rows that it reads.
    """
    types: dict[str, pa.DataType] = {}
    for schema in sources:
        for field in schema:
            known = types.setdefault(field.name.lower(), field.type)
            if known != field.type:
                # Without resolved names, the column of this name is not known.
                types[field.name.lower()] = pa.null()
    if not any(map(_has_list_of_structs, types.values())):
        return
    aliases = {table.alias_or_name.lower() for table in tree.find_all(exp.Table)}
    aliases |= {alias.name.lower() for alias in tree.find_all(exp.TableAlias)}
    for column in list(tree.find_all(exp.Column)):
        path = [part.name for part in column.parts]
        node: exp.Expr = column
        while isinstance(node.parent, exp.Dot) and node.arg_key == "this":
            node = node.parent
            path.append(node.expression.name)
        qualifier = path[:1] if len(path) > 1 and path[0].lower() in aliases else []
        fields = path[len(qualifier) :]
        type_ = types.get(fields[0].lower())
        if type_ is None or len(fields) < 2:
            continue
        root = exp.column(fields[0], table=qualifier[0] if qualifier else None, quoted=True)
        replacement = _access(root, type_, fields[1:])
        if replacement is not None:
            is_projection = isinstance(node.parent, exp.Select) and node.arg_key == "expressions"
            node.replace(exp.alias_(replacement, fields[-1], quoted=True) if is_projection else replacement)


def _has_list_of_structs(type_: pa.DataType) -> bool:
    if pa.types.is_list(type_):
        return bool(pa.types.is_struct(type_.value_type)) or _has_list_of_structs(type_.value_type)
    return bool(pa.types.is_struct(type_)) and any(_has_list_of_structs(field.type) for field in type_)


def _access(value: exp.Expr, type_: pa.DataType, path: list[str]) -> exp.Expr | None:
    """The field at a path of a value, where at least one step is a list; None for other paths."""
    crosses_list = False
    for number, name in enumerate(path):
        if pa.types.is_list(type_) and pa.types.is_struct(type_.value_type):
            item = f"item_{number}"
            inner, crosses_list = type_.value_type, True
            body = exp.Dot(this=exp.to_identifier(item), expression=exp.to_identifier(name, quoted=True))
            function = exp.Lambda(this=body, expressions=[exp.to_identifier(item)])
            value = exp.Anonymous(this="list_transform", expressions=[value, function])
        elif pa.types.is_struct(type_):
            inner = type_
            value = exp.Dot(this=value, expression=exp.to_identifier(name, quoted=True))
        else:
            return None
        field = next((field for field in inner if field.name.lower() == name.lower()), None)
        if field is None:
            return None
        type_ = field.type if inner is type_ else pa.list_(field.type)
    return value if crosses_list else None

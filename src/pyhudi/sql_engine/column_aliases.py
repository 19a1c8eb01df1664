"""Check that an alias of a relation names all of its columns, as Spark does; DuckDB accepts fewer names."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from pyhudi.errors import InvalidRequest
from pyhudi.sql_engine.table_references import common_table_expression

_OTHER_GENERATORS = frozenset({"inline_outer", "json_tuple", "variant_explode", "variant_explode_outer"})
"""Generators that are no class of the parser."""


def check_column_aliases(tree: exp.Expr, tables: Mapping[str, int]) -> None:
    """Raise InvalidRequest if an alias names another number of columns than its rows have.

    Args:
        tables: Numbers of columns of tables, by their name in the tree.
    """
    for alias in tree.find_all(exp.TableAlias):
        if alias.columns:
            check_alias(alias.name, len(alias.columns), _column_count(alias.parent, tables))


def check_alias(name: str, named: int, count: int | None) -> None:
    """Raise InvalidRequest if an alias does not name all columns; None for an unknown number of columns."""
    if count not in (named, None):
        raise InvalidRequest(f"alias {name!r} names {named} columns, but its rows have {count}")


def _column_count(node: exp.Expr | None, tables: Mapping[str, int]) -> int | None:
    """Number of columns of a relation; None if it is unknown."""
    if node is None or node.args.get("pivots") or (node.args.get("joins") and not isinstance(node, exp.Select)):
        return None
    if isinstance(node, exp.Table):
        query = common_table_expression(node, node.name)
        if query is None:
            return tables.get(node.name)
        is_recursive = query.parent is not None and query.parent.args.get("recursive")
        return None if is_recursive else _column_count(query, tables)
    if isinstance(node, exp.Values):
        return len(node.expressions[0].expressions)
    if isinstance(node, exp.Select):
        counts = [_projected_count(projection, node, tables) for projection in node.expressions]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None
    return _column_count(node.this, tables) if isinstance(node, (exp.CTE, exp.Subquery, exp.SetOperation)) else None


def _projected_count(projection: exp.Expr, select: exp.Select, tables: Mapping[str, int]) -> int | None:
    """Number of columns of one expression of a SELECT list; None if it is unknown."""
    qualifier = projection.args.get("table") if isinstance(projection, exp.Column) else None
    star = projection if qualifier is None else projection.this
    if not isinstance(star, exp.Star):
        return None if any(map(_generates_columns, projection.walk())) else 1
    if any(star.args.values()) or select.args.get("laterals"):
        return None
    joins = select.args.get("joins") or []
    if any(join.args.get("using") or join.method or join.kind in ("SEMI", "ANTI") for join in joins):
        return None
    from_ = select.args.get("from_")
    relations = [] if from_ is None else [from_.this, *(join.this for join in joins)]
    if qualifier is not None:
        relations = [relation for relation in relations if relation.alias_or_name.lower() == qualifier.name.lower()]
    known = [count for relation in relations if (count := _column_count(relation, tables)) is not None]
    return sum(known) if relations and len(known) == len(relations) else None


def _generates_columns(node: exp.Expr) -> bool:
    """True for a generator, such as posexplode, whose number of columns depends on its kind and arguments."""
    is_named = isinstance(node, exp.Anonymous) and node.name.lower() in _OTHER_GENERATORS
    return is_named or isinstance(node, (exp.UDTF, exp.QueryTransform))

"""Filters: parsed, bound to a schema, then run on rows, statistics and partition values.

    parse       SQL text, a list of tuples (all must hold: `[("city", "=", "sf")]`) or a list of such lists (any may hold)
    from_arrow  expressions of pyarrow, from_polars: of Polars;  conditions: what these and the parser make of columns and values
    tree        what it becomes: a tree of Expr;  functions: what these make of columns, as Spark does in UTC
    binding     columns looked up, and each literal as a value of its column's type
    arrow       run on rows;  spark_sql: handed to Spark;  pruning: run on partition values and column statistics
    derived     ranges of what functions make of a column, from the ranges of the column

Logic is SQL's: a comparison with null is unknown, and a row is kept when the whole is true.
"""

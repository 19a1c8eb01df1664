"""Filters: parsed, bound to a schema, then evaluated on rows, column statistics and partition values.

    filter_parser        parse SQL text, a list of tuples (AND: `[("city", "=", "sf")]`) or a list of such lists (OR)
    from_arrow           convert expressions of pyarrow; from_polars: of Polars; build: constructors that all of them
                         share
    filter_ast           the abstract syntax tree; filter_functions: functions of columns, with Spark's semantics in UTC
    binding              resolve columns and convert each literal to its column's type
    arrow_expressions    evaluate on rows; spark_sql: convert to Spark SQL
    range_pruning        evaluate on partition values and column statistics
    monotonic_functions  derive statistics of function results from those of the column
    pushdown             convert the conditions that an engine pushes down

Logic is SQL's three-valued logic: a comparison with null is unknown, and a row matches if the whole filter is true.
"""

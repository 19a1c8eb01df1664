"""Settings that `hoodie.properties` stores for writers of PyHudi, under keys that Hudi keeps and ignores.

    pyhudi.table.options.<option>     an option of reads, writes or services; options of a call or session override it
    pyhudi.table.defaults.<column>    the default of a column, a literal as in SQL
    pyhudi.table.constraints.<name>   a condition that every written row has to satisfy, see `constraints`
    pyhudi.table.properties.<key>     at creation: a user property, stored as <key>

Creation takes these keys among its options. They change with `Table.set_properties`.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyhudi.options.declaration import REGISTRY, Options
from pyhudi.options.table_options import CONSTRAINT_PREFIX, DEFAULT_PREFIX, OPTION_PREFIX, STORED_PREFIXES, USER_PREFIX
from pyhudi.table.table_config import TableConfig

COMMENT_PROPERTY = "comment"
"""User property with the comment of a table, as in Spark's catalogs."""


def stored_options(config: TableConfig) -> dict[str, str]:
    """Return the options that the table stores, by canonical name."""
    return _with_prefix(config, OPTION_PREFIX)


def column_defaults(config: TableConfig) -> dict[str, str]:
    """Return the defaults of columns: literals as in SQL, by column name."""
    return _with_prefix(config, DEFAULT_PREFIX)


def table_constraints(config: TableConfig) -> tuple[tuple[str, str], ...]:
    """Return the constraints of a table: names and conditions, sorted by name."""
    return tuple(sorted(_with_prefix(config, CONSTRAINT_PREFIX).items()))


def default_sql(config: TableConfig, name: str) -> str:
    """Return the default of a column as Spark SQL, where a backslash is an escape; NULL if it has none."""
    return column_defaults(config).get(name, "NULL").replace("\\", "\\\\")


def with_stored_options(options: Options, config: TableConfig) -> Options:
    """Return options with those of the table as defaults."""
    stored = {key: value for key, value in stored_options(config).items() if key in REGISTRY}
    return Options(tuple({**stored, **dict(options.values)}.items()), options.extra) if stored else options


def with_new_options(options: Options) -> Options:
    """Return the options of a creation, with those that the new table will store as defaults."""
    stored = {key.removeprefix(OPTION_PREFIX): value for key, value in options.with_prefix(OPTION_PREFIX).items()}
    return Options(tuple({**stored, **dict(options.values)}.items()), options.extra)


def new_stored_properties(extra: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a new table for the keys with the prefixes of this module."""
    return {key.removeprefix(USER_PREFIX): value for key, value in extra.items() if key.startswith(STORED_PREFIXES)}


def _with_prefix(config: TableConfig, prefix: str) -> dict[str, str]:
    return {key.removeprefix(prefix): value for key, value in config.properties if key.startswith(prefix)}

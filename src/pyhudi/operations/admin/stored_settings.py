"""Settings that `hoodie.properties` stores for writers of PyHudi, under keys that Hudi keeps and ignores.

    pyhudi.table.options.<option>     an option of reads, writes or services; options of a call or session override it
    hoodie.write.lock.*               the lock, as writers of Hudi 1.2 use it
    pyhudi.table.defaults.<column>    the default of a column, a literal as in SQL
    pyhudi.table.constraints.<name>   a condition that every written row has to satisfy, see `constraints`
    pyhudi.table.properties.<key>     at creation: a user property, stored as <key>

Creation takes these keys among its options. They change with `Table.set_properties`.

Other people may have written these files. Stored options of origin `table` apply to all users of the table. Those of origin
`caller` apply only if the caller trusts the table: by `pyhudi.stored.options=trusted`, or by a trusted prefix in the user's own
configuration. Defaults and constraints are parsed by PyHudi's own grammar and never executed as SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from pyhudi.errors import CorruptData, HudiError, InvalidRequest
from pyhudi.operations.admin.table_settings import TableSettings
from pyhudi.options.declaration import REGISTRY, Options, settings_options
from pyhudi.options.lock_options import LOCK_LOCATION
from pyhudi.options.supported import parse_stored_option, warn_caller
from pyhudi.options.table_options import (
    CONSTRAINT_PREFIX,
    DEFAULT_PREFIX,
    OPTION_PREFIX,
    STORED_OPTIONS,
    STORED_PREFIXES,
    USER_PREFIX,
)
from pyhudi.records.assignments import literal_value, parse_literal
from pyhudi.storage.user_configuration import is_trusted
from pyhudi.table.table_config import TableConfig

COMMENT_PROPERTY = "comment"
"""User property with the comment of a table, as in Spark's catalogs."""


@dataclass(frozen=True, slots=True)
class StoredOptions:
    """The options that a table stores, as one caller uses them.

    Attributes:
        used: Values by canonical name, checked.
        unused: Canonical names of options of origin `caller` that the caller neither passes nor trusts, sorted.
    """

    used: Mapping[str, str]
    unused: tuple[str, ...]


def stored_options(config: TableConfig) -> dict[str, str]:
    """Return the options that the table stores, by canonical name.

    That includes properties which configure the lock of Hudi's writers: SQL of Hudi 1.2 uses them, although no release stores
    them by itself.
    """
    properties = dict(config.properties)
    locks = {option.key: properties[option.key] for option in LOCK_LOCATION if option.key in properties}
    return {**locks, **_with_prefix(config, OPTION_PREFIX)}


def resolve_stored_options(options: Options, config: TableConfig, uri: str) -> StoredOptions:
    """Return the stored options that apply under the options of a caller.

    Raises:
        CorruptData: A stored value is illegal, or a table cannot store the option.
    """
    stored = {key: value for key, value in stored_options(config).items() if key in REGISTRY}
    mode = options.explicit(STORED_OPTIONS)
    if mode == "none" or not stored:
        return StoredOptions({}, ())
    # An option that the caller passes decides, and the stored value is not looked at.
    own = with_new_options(options)
    missing = {key: value for key, value in stored.items() if own.explicit(key) is None}
    untrusted = sorted(key for key in missing if REGISTRY[key].origin == "caller")
    if untrusted and (mode == "trusted" or (mode is None and is_trusted(uri))):
        untrusted = []
    used = {key: parse_stored_option(REGISTRY[key], value) for key, value in missing.items() if key not in untrusted}
    return StoredOptions(used, tuple(untrusted))


def with_stored_options(options: Options, config: TableConfig, uri: str) -> Options:
    """Return options with those of the table as defaults. Raises CorruptData as `resolve_stored_options`."""
    used = resolve_stored_options(options, config, uri).used
    own = with_new_options(options)
    return Options(tuple({**used, **dict(own.values)}.items()), own.extra) if used else own


def warn_of_unused_options(options: Options, config: TableConfig, uri: str) -> None:
    """Issue one warning that names the stored options which are not used, and how to accept them."""
    unused = resolve_stored_options(options, config, uri).unused
    if unused:
        warn_caller(
            f"table {uri} stores options that only callers may set, and they are not used: {', '.join(unused)}. If you trust "
            f"its writers, open it with trusted=True (option {STORED_OPTIONS}=trusted), or add its location to tables of section "
            "[trust] in ~/.pyhudi.toml; otherwise pass the options yourself"
        )


def with_new_options(options: Options) -> Options:
    """Return the options of a caller, with those that the caller stores in the table as defaults."""
    stored = {key.removeprefix(OPTION_PREFIX): value for key, value in options.with_prefix(OPTION_PREFIX).items()}
    return Options(tuple({**stored, **dict(options.values)}.items()), options.extra) if stored else options


def split_new_options(options: Options) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the options of a call that creates a table which the table stores as its defaults, under their property names, and
    the canonical names of those that apply to the caller only.

    Options that define the table are neither; the table has them as properties.
    """
    stored, left = {}, []
    for key, value in options.values:
        option = REGISTRY[key]
        if option.stored_as or option in settings_options(TableSettings) or option == STORED_OPTIONS:
            continue
        if option.origin == "table" and not option.chooses:
            stored[OPTION_PREFIX + key] = value
        else:
            left.append(key)
    return stored, tuple(sorted(left))


def column_defaults(config: TableConfig) -> dict[str, str]:
    """Return the defaults of columns: literals as in SQL, by column name."""
    return _with_prefix(config, DEFAULT_PREFIX)


def column_default(config: TableConfig, column: pa.Field) -> pa.Scalar:
    """Return the default of a column in its type; null if it has none.

    Raises:
        CorruptData: The stored default is no literal of the type. It is never evaluated as SQL.
    """
    text = column_defaults(config).get(column.name)
    if text is None:
        return pa.scalar(None, column.type)
    try:
        return parse_literal(text, column)
    except HudiError as error:
        raise CorruptData(
            f"property {DEFAULT_PREFIX}{column.name} is no default of column {column.name!r}: {error}. Set another one with "
            "set_properties"
        ) from error


def table_constraints(config: TableConfig) -> tuple[tuple[str, str], ...]:
    """Return the constraints of a table: names and conditions, sorted by name."""
    return tuple(sorted(_with_prefix(config, CONSTRAINT_PREFIX).items()))


def new_stored_properties(extra: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a new table for the keys with the prefixes of this module."""
    properties = {key.removeprefix(USER_PREFIX): value for key, value in extra.items() if key.startswith(STORED_PREFIXES)}
    for key, value in properties.items():
        if key.startswith(DEFAULT_PREFIX):
            check_default(key, value)
    return properties


def check_default(key: str, text: str) -> None:
    """Raise InvalidRequest for a default that is no literal. key: its property."""
    try:
        literal_value(text)
    except HudiError as error:
        raise InvalidRequest(f"property {key} must be a literal, such as 1.5 or 'new': {error}") from error


def _with_prefix(config: TableConfig, prefix: str) -> dict[str, str]:
    return {key.removeprefix(prefix): value for key, value in config.properties if key.startswith(prefix)}

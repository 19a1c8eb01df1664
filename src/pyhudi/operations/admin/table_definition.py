"""The definition of an existing table, as options that create another table like it."""

from __future__ import annotations

from pyhudi.operations.admin.stored_settings import column_defaults, stored_options
from pyhudi.operations.admin.table_settings import TableSettings
from pyhudi.options import table_options as props
from pyhudi.options.declaration import Option, settings_options
from pyhudi.options.write_options import DELETE_FIELD, DELETE_MARKER
from pyhudi.records.keys.key_spec import infer_key_generator
from pyhudi.table.table_config import TableConfig, merge_properties, mode_properties

MERGE_RULE = (props.MERGE_MODE, props.PAYLOAD, props.STRATEGY_ID)
"""Options that together define the merge rule."""

_OWN = {*props.FIXED, *MERGE_RULE, props.NAME, props.DATABASE, props.VERSION, props.ORDERING}
_GENERATOR = {props.GENERATOR_CLASS, props.GENERATOR_TYPE}


def creation_options(config: TableConfig) -> dict[str, str]:
    """Return the options that create a table with the same definition: keys, partitioning, type, merge rule, properties.

    The name, the database, constraints and indexes are not included; the version only if PyHudi creates tables of it,
    and the key generator only if the fields do not imply it. Properties of other programs have the prefix of user
    properties.
    """
    stored = {**dict(config.properties), **config.keys.to_properties()}
    implied = infer_key_generator(config.keys.record_fields, stored[props.PARTITION_FIELDS.stored_as].split(","))
    left_out = _OWN | _GENERATOR if config.keys.generator is implied else _OWN
    copied = settings_options(TableSettings) - left_out
    values = {option.key: stored[option.stored_as] for option in copied if stored.get(option.stored_as)}
    values |= {option.key: value for option, value in _merge_rule(config).items()}
    if config.version.is_writable:
        values[props.VERSION.key] = str(int(config.version))
    if config.ordering_fields:
        values[props.ORDERING.key] = ",".join(config.ordering_fields)
    values |= {props.OPTION_PREFIX + name: value for name, value in stored_options(config).items()}
    values |= {props.DEFAULT_PREFIX + name: value for name, value in column_defaults(config).items()}
    for key, value in stored.items():
        if key.startswith(props.TIME_PREFIXES):
            values[key] = value
        elif not key.startswith(("hoodie.", "pyhudi.")):
            values[props.USER_PREFIX + key] = value
    return values


def _merge_rule(config: TableConfig) -> dict[Option, str]:
    merge = config.merge
    if merge.translated:
        # The payload class implies the mode; a delete marker is the only merge property that can be chosen.
        properties = dict(merge.properties)
        marker = {option: properties[option.key] for option in (DELETE_FIELD, DELETE_MARKER) if option.key in properties}
        return {props.PAYLOAD: merge.translated, **marker}
    stored = mode_properties(merge) if config.version.merges_by_modes else merge_properties(merge)
    return {option: stored[option.stored_as] for option in MERGE_RULE if option.stored_as in stored}

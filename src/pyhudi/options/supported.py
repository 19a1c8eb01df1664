"""Registry and validation of the `hoodie.*` options.

A caller's mapping is parsed once into an `Options` value; lower layers use typed settings. The modules `*_options` of this
package declare the options, by subject; settings refer to them.

Every key belongs to one of these classes:

    supported   declared, parsed and applied (`SUPPORTED`)
    no effect   valid, but what it tunes does not exist here, so every value gives the same table (`no_effect_options`)
    refused     valid in Hudi, but not implemented in PyHudi: an error, unless the value is neutral (`refused_options`); and
                names that only Hudi's Flink connector uses (`FLINK`)
    unknown     an error with the nearest names if it begins with `hoodie.` or `pyhudi.`, else a warning; except for keys
                with the prefix of commit metadata

`pyhudi.options.scope` defines which operations use a supported option. Table properties (`hoodie.table.*` and others)
are allowed among the options, as in Spark jobs; they are compared with the table.

Source: docs/reference/options.md, "Supported".
"""

from __future__ import annotations

import difflib
import re
import sys
import warnings
from collections.abc import Mapping
from typing import TypeVar

from pyhudi import features
from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.format.properties import redact_secret
from pyhudi.options import (
    bootstrap_options,
    callback_options,
    file_options,
    index_options,
    lock_options,
    metrics_options,
    read_options,
    service_options,
    sync_options,
    table_options,
    validator_options,
    write_options,
)
from pyhudi.options.declaration import Option, Options
from pyhudi.options.no_effect_options import NO_OP
from pyhudi.options.refused_options import MERGER_LISTS, REFUSED
from pyhudi.records.mergers import is_merger_class

MODULES = {
    "table": table_options,
    "write": write_options,
    "files": file_options,
    "read": read_options,
    "service": service_options,
    "index": index_options,
    "lock": lock_options,
    "catalog sync": sync_options,
    "callback": callback_options,
    "validator": validator_options,
    "metrics": metrics_options,
    **({"bootstrap": bootstrap_options} if "bootstrap" in features.CAPABILITIES else {}),
}
"""The declarations of options by subject."""

SUPPORTED: Mapping[str, Option] = {
    key: option
    for key, option in sorted((o.key, o) for module in MODULES.values() for o in vars(module).values() if isinstance(o, Option))
}
"""Supported options by canonical key."""

FORWARDED = (*table_options.STORED_PREFIXES, *table_options.TIME_PREFIXES, "spark.")
"""Prefixes of keys that other code reads by name (key generators), or that belong to Spark's session."""

V = TypeVar("V")
_NONE = Options(())

FLINK: dict[str, Option | None] = {
    "archive.max_commits": service_options.KEEP_MAX_COMMITS,
    "archive.min_commits": service_options.KEEP_MIN_COMMITS,
    "cdc.enabled": table_options.CHANGES,
    "cdc.supplemental.logging.mode": table_options.CHANGES_MODE,
    "changelog.enabled": None,
    "clean.async.enabled": service_options.CLEAN_SWITCH,
    "clean.policy": service_options.CLEAN_POLICY,
    "clean.retain_commits": service_options.CLEAN_COMMITS_RETAINED,
    "clean.retain_file_versions": service_options.CLEAN_FILEVERSIONS_RETAINED,
    "clean.retain_hours": service_options.CLEAN_HOURS_RETAINED,
    "clustering.async.enabled": service_options.CLUSTER_ASYNC,
    "clustering.delta_commits": service_options.CLUSTERING_ASYNC_MAX_COMMITS,
    "clustering.plan.partition.filter.mode": service_options.CLUSTERING_PLAN_PARTITION_FILTER_MODE,
    "clustering.plan.strategy.class": service_options.CLUSTERING_PLAN_CLASS,
    "clustering.plan.strategy.cluster.begin.partition": service_options.CLUSTERING_CLUSTER_BEGIN_PARTITION,
    "clustering.plan.strategy.cluster.end.partition": service_options.CLUSTERING_CLUSTER_END_PARTITION,
    "clustering.plan.strategy.daybased.lookback.partitions": service_options.CLUSTERING_DAYBASED_LOOKBACK_PARTITIONS,
    "clustering.plan.strategy.daybased.skipfromlatest.partitions": service_options.CLUSTERING_DAYBASED_SKIPFROMLATEST_PARTITIONS,
    "clustering.plan.strategy.max.num.groups": service_options.CLUSTERING_MAX_NUM_GROUPS,
    "clustering.plan.strategy.partition.regex.pattern": service_options.CLUSTERING_PARTITION_REGEX_PATTERN,
    "clustering.plan.strategy.partition.selected": service_options.CLUSTERING_PARTITION_SELECTED,
    "clustering.plan.strategy.small.file.limit": service_options.CLUSTERING_SMALL_FILE_LIMIT,
    "clustering.plan.strategy.sort.columns": service_options.CLUSTERING_SORT_COLUMNS,
    "clustering.plan.strategy.target.file.max.bytes": service_options.CLUSTERING_TARGET_FILE_MAX_BYTES,
    "clustering.schedule.enabled": service_options.CLUSTER_SCHEDULE,
    "clustering.tasks": None,
    "compaction.async.enabled": service_options.COMPACT_ASYNC,
    "compaction.delta_commits": service_options.MAX_DELTA_COMMITS,
    "compaction.delta_seconds": service_options.COMPACT_INLINE_MAX_DELTA_SECONDS,
    "compaction.max_memory": write_options.MEMORY_BUDGET,
    "compaction.operation.execute.async.enabled": service_options.COMPACT_ASYNC,
    "compaction.schedule.enabled": service_options.COMPACT_SCHEDULE,
    "compaction.target_io": service_options.COMPACTION_TARGET_IO,
    "compaction.tasks": None,
    "compaction.timeout.seconds": None,
    "compaction.trigger.strategy": service_options.COMPACTION_TRIGGER,
    "eventtime.field": None,
    "hive_sync.enable": None,
    "hive_sync.enabled": None,
    "index.bootstrap.enabled": None,
    "index.global.enabled": write_options.INDEX_TYPE,
    "index.partition.regex": None,
    "index.state.ttl": None,
    "index.type": write_options.INDEX_TYPE,
    "metadata.compaction.delta_commits": index_options.METADATA_COMPACT_MAX_DELTA_COMMITS,
    "metadata.enabled": index_options.METADATA_TABLE,
    "partition.default_name": None,
    "payload.class": table_options.PAYLOAD,
    "precombine.field": table_options.ORDERING,
    "read.cdc.from.changelog": None,
    "read.commits.limit": read_options.STREAM_MAX_INSTANTS,
    "read.data.skipping.enabled": read_options.ENABLE_DATA_SKIPPING,
    "read.end-commit": read_options.READ_END_INSTANTTIME,
    "read.start-commit": read_options.READ_BEGIN_INSTANTTIME,
    "read.streaming.check-interval": None,
    "read.streaming.enabled": None,
    "read.streaming.skip_clustering": None,
    "read.streaming.skip_compaction": None,
    "read.streaming.skip_insertoverwrite": None,
    "read.streaming.start-commit": read_options.START_OFFSET,
    "read.tasks": None,
    "read.utc-timezone": None,
    "record.merge.mode": table_options.MERGE_MODE,
    "record.merger.impls": None,
    "record.merger.strategy": table_options.STRATEGY_ID,
    "source.avro-schema": None,
    "source.avro-schema.path": None,
    "table.type": table_options.TABLE_TYPE,
    "write.batch.size": None,
    "write.bucket_assign.tasks": None,
    "write.bulk_insert.shuffle_input": None,
    "write.bulk_insert.sort_input": write_options.BULKINSERT_SORT_MODE,
    "write.bulk_insert.sort_input.by_record_key": write_options.BULKINSERT_SORT_MODE,
    "write.client.id": None,
    "write.commit.ack.timeout": None,
    "write.datetime.partitioning": None,
    "write.ignore.failed": None,
    "write.index_bootstrap.tasks": None,
    "write.insert.cluster": None,
    "write.log.max.size": file_options.LOGFILE_MAX_SIZE,
    "write.log_block.size": file_options.LOGFILE_DATA_BLOCK_MAX_SIZE,
    "write.merge.max_memory": write_options.MEMORY_BUDGET,
    "write.operation": write_options.OPERATION,
    "write.parquet.block.size": file_options.PARQUET_BLOCK_SIZE,
    "write.parquet.max.file.size": write_options.MAX_FILE_SIZE,
    "write.parquet.page.size": file_options.PARQUET_PAGE_SIZE,
    "write.partition.format": None,
    "write.partition.overwrite.mode": write_options.OPERATION,
    "write.payload.class": table_options.PAYLOAD,
    "write.precombine": write_options.COMBINE_BEFORE_UPSERT,
    "write.precombine.field": table_options.ORDERING,
    "write.rate.limit": None,
    "write.retry.interval.ms": None,
    "write.retry.times": write_options.NUM_RETRIES_ON_CONFLICT_FAILURES,
    "write.sort.memory": write_options.MEMORY_BUDGET,
    "write.task.max.size": write_options.MEMORY_BUDGET,
    "write.tasks": None,
    "write.utc-timezone": None,
}
"""Names used only by Hudi's Flink connector, and the corresponding option here; None if there is none."""


def parse_options(*layers: Mapping[str, object] | None, base_options: Options = _NONE) -> Options:
    """Validate and canonicalize options; later layers win.

    Warns about unknown keys of other programs. Keys with the prefix of commit metadata are known; the options may set
    that prefix.

    Args:
        layers: Option mappings; None is empty.
        base_options: Options of an outer scope, for the prefix of commit metadata.

    Raises:
        InvalidRequest: An illegal value, two spellings of one option with different values, a name of the Flink
            connector, or an unknown name that begins with `hoodie.` or `pyhudi.`.
        Unsupported: An option that PyHudi does not implement.
    """
    values: dict[str, str] = {}
    extra: dict[str, str] = {}
    for layer in layers:
        spellings: dict[str, tuple[str, str]] = {}
        for key, raw in (layer or {}).items():
            if raw is None:
                continue
            text = _to_text(raw)
            option = _BY_SPELLING.get(key)
            if option is not None:
                checked = _check_value(key, option, text)
                earlier = spellings.get(option.key)
                if earlier is not None and earlier[1] != checked:
                    raise InvalidRequest(
                        f"options {earlier[0]}={redact_secret(earlier[0], earlier[1])} and {key}={redact_secret(key, text)} are "
                        "spellings of one "
                        "option and have different values"
                    )
                spellings[option.key] = (key, checked)
                values[option.key] = checked
            elif key.startswith(table_options.OPTION_PREFIX):
                name, checked = storable_option(key.removeprefix(table_options.OPTION_PREFIX), text)
                extra[table_options.OPTION_PREFIX + name] = checked
            elif (refusal := _find(REFUSED, key)) is not None:
                if not refusal.accepts(text) and not (refusal is MERGER_LISTS and _are_mergers(text)):
                    raise Unsupported(f"option {key}={redact_secret(key, text)} is refused: {refusal.reason}")
            elif key in FLINK:
                ours = FLINK[key]
                hint = f"use {ours}" if ours else "it has no effect in PyHudi; leave it out"
                raise InvalidRequest(f"option {key}={redact_secret(key, text)} belongs to Hudi's Flink connector: {hint}")
            elif key.startswith(FORWARDED) or no_effect_reason(key) is None:
                extra[key] = text
    prefix = values.get(write_options.METADATA_PREFIX.key, base_options.value_or_default(write_options.METADATA_PREFIX))
    for key in extra:
        if not key.startswith(FORWARDED) and not (prefix and key.startswith(prefix)):
            _report_unknown(key)
    return Options(tuple(values.items()), tuple(extra.items()))


def find_option(key: str) -> Option | None:
    """Return the option of a key, in any of its spellings; None for any other key."""
    return _BY_SPELLING.get(key)


def storable_option(key: str, value: str) -> tuple[str, str]:
    """Return the canonical name and the checked value of an option that a table may store.

    Raises:
        InvalidRequest: It is no option, defines the table, has an illegal value, or must be passed with each call.
    """
    option = _BY_SPELLING.get(key)
    if option is None or option.stored_as:
        raise InvalidRequest(
            f"property {key} is no option of reads, writes or services{nearest_name(key)}. See docs/reference/options.md"
        )
    check_storable_option(option)
    return option.key, _check_value(key, option, value)


def parse_stored_option(option: Option, value: str) -> str:
    """Return the checked value of an option that a table stores. Raises CorruptData for one that no table can store."""
    try:
        check_storable_option(option)
        return _check_value(table_options.OPTION_PREFIX + option.key, option, value)
    except InvalidRequest as error:
        raise CorruptData(
            f"hoodie.properties stores an illegal option: {error}. Open the table with stored_options=False, and remove the "
            f'option with set_properties({{"{table_options.OPTION_PREFIX}{option.key}": None}})'
        ) from error


def check_storable_option(option: Option) -> None:
    """Raise InvalidRequest for an option that a table must not store."""
    if option == table_options.STORED_OPTIONS:
        raise InvalidRequest(f"option {option} decides which options of a table are used, and is not stored in tables")
    if option.stored_as:
        raise InvalidRequest(f"option {option} is the table property {option.stored_as}, and is stored under that name")
    if option.chooses:
        raise InvalidRequest(
            f"option {option} selects what one call reads or writes, and is not stored in tables; pass it with options="
        )
    if redact_secret(option.key, "x") != "x":
        raise InvalidRequest(f"option {option} holds a secret, and is not stored in tables; pass it with options=")


def check_known(key: str) -> None:
    """Raise InvalidRequest for a key that is no option of Hudi or PyHudi, with the nearest ones."""
    if not _is_known(key):
        raise InvalidRequest(f"option {key} is unknown{nearest_name(key)}")


def is_known_or_misspelled(key: str) -> bool:
    """Return True for a key of Hudi or PyHudi, and for one that differs from such a key by a few letters."""
    return _is_known(key) or bool(difflib.get_close_matches(key, _KNOWN, n=1, cutoff=_MISSPELLED))


def _is_known(key: str) -> bool:
    is_option = key in _BY_SPELLING or key in FLINK or key.startswith(FORWARDED)
    return is_option or no_effect_reason(key) is not None or _find(REFUSED, key) is not None


def no_effect_reason(key: str) -> str | None:
    """Return why an option of Hudi has no effect here; None for any other key."""
    return _find(NO_OP, key)


def _find(rules: Mapping[str, V], key: str) -> V | None:
    """The rule of a name, else that of the longest beginning of it."""
    if key in rules:
        return rules[key]
    fitting = [name for name in rules if name.endswith("*") and key.startswith(name[:-1])]
    return rules[max(fitting, key=len)] if fitting else None


def nearest_name(key: str) -> str:
    """Return half a sentence that suggests the known options nearest to a key; empty if there are none."""
    near = difflib.get_close_matches(key, _KNOWN, n=3, cutoff=0.85) or difflib.get_close_matches(key, _KNOWN, n=1, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def canonical_name(key: str) -> str:
    """Restore the capitals of a known key that was lowercased, as Spark does with the options of a source."""
    return _CAPITALS.get(key, key)


def _to_text(raw: object) -> str:
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, (list, tuple)):
        return ",".join(str(part) for part in raw)
    return str(raw)


def _are_mergers(names: str) -> bool:
    """Whether each class of a list is one of Hudi's own, or has a registered merger."""
    return all(name in MERGER_LISTS.neutral or is_merger_class(name) for name in names.replace(" ", "").split(","))


def _check_value(key: str, option: Option, text: str) -> str:
    kind, shown = option.kind, redact_secret(key, text)
    if isinstance(kind, tuple):
        for word in kind:
            if text.strip().lower() == word.lower():
                return word
        raise InvalidRequest(f"option {key}={shown!r} is none of {', '.join(kind)}")
    if kind is bool:
        if text.strip().lower() not in ("true", "false"):
            raise InvalidRequest(f"option {key}={shown!r} is neither true nor false")
        return text.strip().lower()
    if kind in (int, float):
        pattern = _WHOLE_NUMBER if kind is int else _NUMBER
        if not pattern.fullmatch(text.strip()):
            raise InvalidRequest(f"option {key}={shown!r} is not a {'whole number' if kind is int else 'number'}")
        smallest = option.at_least
        if smallest is not None and float(text) < smallest:
            raise InvalidRequest(f"option {key}={shown} must be {'positive' if smallest == 1 else f'{smallest} or more'}")
        return text.strip()
    return text


_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


def _report_unknown(key: str) -> None:
    """Raise InvalidRequest for a name that looks like an option of Hudi or PyHudi, warn about any other."""
    if key.startswith(("hoodie.", "pyhudi.")):
        raise InvalidRequest(
            f"option {key} is unknown: neither Hudi nor PyHudi has it{nearest_name(key)}. See docs/reference/options.md"
        )
    warn_caller(f"option {key} is unknown and has no effect{nearest_name(key)}")


def warn_caller(message: str) -> None:
    """Issue a UserWarning that refers to the line which called PyHudi."""
    warnings.warn(message, UserWarning, stacklevel=_depth_of_caller())


def _depth_of_caller() -> int:
    """Number of stack frames up to the code that called PyHudi: the line that a warning refers to."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "pyhudi":
        frame, depth = frame.f_back, depth + 1
    return depth


_MISSPELLED = 0.9
"""Similarity from which an unknown key is taken for a misspelling."""

_BY_SPELLING = {spelling: option for option in SUPPORTED.values() for spelling in option.all_names}
_KNOWN = tuple(name for name in (*_BY_SPELLING, *NO_OP, *REFUSED) if not name.endswith("*"))
_CAPITALS = {key.lower(): key for key in _KNOWN if key != key.lower()}

"""Bootstrap planning: the mode (METADATA_ONLY or FULL_RECORD) and the name of each partition of a source.

Source: docs/formats/writing.md, "Bootstrap".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, TypeVar

import pyarrow as pa

from pyhudi.errors import InvalidRequest, TableState, Unsupported
from pyhudi.format.paths import split_path
from pyhudi.options import bootstrap_options
from pyhudi.options.declaration import Option, Options, read_settings
from pyhudi.records.keys.key_spec import KeySpec, partition_columns, path_valued_columns
from pyhudi.records.keys.partition_paths import decode_partition_value, parse_partition_path

V = TypeVar("V")


class BootstrapMode(StrEnum):
    """Whether the rows of a partition stay in the source files, or are written to the table."""

    METADATA_ONLY = "METADATA_ONLY"
    FULL_RECORD = "FULL_RECORD"

    @property
    def other(self) -> BootstrapMode:
        """The other mode."""
        return BootstrapMode.FULL_RECORD if self is BootstrapMode.METADATA_ONLY else BootstrapMode.METADATA_ONLY


_SELECTORS = {
    "MetadataOnlyBootstrapModeSelector": BootstrapMode.METADATA_ONLY,
    "FullRecordBootstrapModeSelector": BootstrapMode.FULL_RECORD,
    "BootstrapRegexModeSelector": None,
}
_PACKAGE = "org.apache.hudi.client.bootstrap."
_TRANSLATORS = {"IdentityBootstrapPartitionPathTranslator": False, "DecodedBootstrapPartitionPathTranslator": True}


@dataclass(frozen=True, slots=True)
class BootstrapRules:
    """Which mode a partition of the source gets, and its name in the table.

    mode: of all partitions; with None, partitions that `regex` matches completely get `regex_mode`. decodes:
    percent-encoding of folder names is undone.
    """

    mode: Annotated[BootstrapMode | None, bootstrap_options.MODE_SELECTOR]
    regex: Annotated[str, bootstrap_options.MODE_SELECTOR_REGEX]
    regex_mode: Annotated[BootstrapMode, bootstrap_options.MODE_SELECTOR_REGEX_MODE]
    decodes: Annotated[bool, bootstrap_options.PARTITIONPATH_TRANSLATOR_CLASS]

    @classmethod
    def of(cls, options: Options) -> BootstrapRules:
        """Build from checked options. Raises Unsupported for user-defined classes, InvalidRequest for an invalid
        regular expression.
        """
        mode = _resolve(options, bootstrap_options.MODE_SELECTOR, _SELECTORS, _PACKAGE + "selector.")
        decodes = _resolve(options, bootstrap_options.PARTITIONPATH_TRANSLATOR_CLASS, _TRANSLATORS, _PACKAGE + "translator.")
        pattern = options.value_or_default(bootstrap_options.MODE_SELECTOR_REGEX)
        try:
            re.compile(pattern)
        except re.error as error:
            raise InvalidRequest(
                f"option {bootstrap_options.MODE_SELECTOR_REGEX}={pattern} is no regular expression: {error}"
            ) from error
        return read_settings(cls, options, mode=mode, decodes=decodes)

    def select_mode(self, source_partition: str) -> BootstrapMode:
        """Return the mode of a folder of the source."""
        if self.mode is not None:
            return self.mode
        return self.regex_mode if re.fullmatch(self.regex, source_partition) else self.regex_mode.other

    def partition_name(self, source_partition: str) -> str:
        """Return the table's partition for a folder of the source."""
        return decode_partition_value(source_partition) if self.decodes else source_partition


def _resolve(options: Options, option: Option, candidates: dict[str, V], package: str) -> V:
    given = options.value_or_default(option)
    name = given.removeprefix(package)
    if name not in candidates:
        raise Unsupported(f"option {option}={given}: classes of users do not run here; use {', '.join(candidates)}")
    return candidates[name]


def parse_bootstrap_mode(text: str) -> str:
    """Return the selector that gives all partitions the mode of a name.  Raises InvalidRequest."""
    named = {str(mode): selector for selector, mode in _SELECTORS.items() if mode is not None}
    if text.strip().upper() not in named:
        raise InvalidRequest(f"mode {text!r} of a bootstrap is neither metadata_only nor full_record")
    return named[text.strip().upper()]


def is_hive_style(fields: Iterable[str], partitions: Iterable[str]) -> bool:
    """Whether every partition path consists of folders `field=value`."""
    names = list(fields)
    return all(
        [folder.partition("=")[:2] for folder in split_path(path)] == [(name, "=") for name in names] for path in partitions
    )


def typed_partition_columns(keys: KeySpec, partitions: Iterable[str], observed_values: Iterable[str]) -> pa.Schema:
    """Return the partition columns that no file of the source holds, with types inferred from paths: whole numbers if
    all values are written as such, text otherwise.

    observed_values: columns of the files.  Raises InvalidRequest for a path that does not fit the partition fields.
    """
    names = [name for name in partition_columns(keys) if name not in set(observed_values)]
    strange = [name for name in names if name not in path_valued_columns(keys) or "." in name]
    if strange:
        raise InvalidRequest(
            f"partition field {strange[0]!r} is no column of the source files, and their folders do not contain it"
        )
    texts: dict[str, list[str]] = {name: [] for name in names}
    for path in partitions:
        try:
            parsed = dict(zip(partition_columns(keys), parse_partition_path(keys, path), strict=True))
        except TableState as error:
            raise InvalidRequest(str(error)) from error
        for name in names:
            if parsed[name] is not None:
                texts[name].append(str(parsed[name]))
    return pa.schema([pa.field(name, _type_of(values)) for name, values in texts.items()])


def _type_of(texts: list[str]) -> pa.DataType:
    """The type of values in paths."""
    if not texts or not all(re.fullmatch(r"0|-?[1-9][0-9]{0,17}", text) for text in texts):
        return pa.string()
    return pa.int32() if all(-(1 << 31) <= int(text) < 1 << 31 for text in texts) else pa.int64()

"""Catalog sync of partitions: partition values from paths, and the difference between catalog and table.

    extractor                   default for                values of a path
    NonPartitioned              no partition columns       none
    SinglePart                  one                        the path with '/' as '-'
    HiveStyle                   one, `name=value` folders  the text after the '='
    MultiPartKeys               two and more               of each folder the text after its '=', or the folder
    SlashEncodedDay, -Hour      by name                    yyyy/MM/dd[/HH] as yyyy-MM-dd[-HH]

Values are spelled as in the path, including percent-encoding, as Hudi registers them: a catalog with both spellings
would show the rows of such a partition twice.

Source: docs/catalog-sync.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyhudi.errors import InvalidRequest
from pyhudi.format.paths import split_path
from pyhudi.options import sync_options

Values = tuple[str, ...]
Extractor = Callable[[str], Values]

_PACKAGE = "org.apache.hudi.hive."
_HIVE_STYLE = re.compile(r"[^=]*=([^=]*)")
_DAY = re.compile(r"(\d{4})/(\d{1,2})/(\d{1,2})")
_HOUR = re.compile(r"(\d{4})/(\d{1,2})/(\d{1,2})/(\d{1,2})")


def extractor_class(column_count: int, *, hive_style: bool, slash_dates: bool = False) -> str:
    """Return the class that reads values from paths, as Hudi chooses it."""
    if not column_count:
        return f"{_PACKAGE}NonPartitionedExtractor"
    if column_count > 1:
        return f"{_PACKAGE}MultiPartKeysValueExtractor"
    if slash_dates:
        return f"{_PACKAGE}SlashEncodedDayPartitionValueExtractor"
    return f"{_PACKAGE}{'HiveStyle' if hive_style else 'SinglePart'}PartitionValueExtractor"


def find_extractor(name: str) -> Extractor:
    """Return the extractor of a class name.  Raises InvalidRequest for a class that Hudi does not have."""
    extractor = _EXTRACTORS.get(name.removeprefix(_PACKAGE))
    if extractor is None:
        known = ", ".join(f"{_PACKAGE}{each}" for each in _EXTRACTORS)
        raise InvalidRequest(f"{sync_options.HIVE_PARTITION_EXTRACTOR_CLASS}={name} is none of {known}")
    return extractor


def _hive_style(path: str) -> Values:
    matched = _HIVE_STYLE.fullmatch(path)
    if matched is None:
        raise InvalidRequest(
            f"the partition {path} is not of the form name=value; name another {sync_options.HIVE_PARTITION_EXTRACTOR_CLASS}"
        )
    return (matched[1],)


def _multi_part(path: str) -> Values:
    return tuple(_hive_style(part)[0] if "=" in part else part for part in split_path(path))


def _slash_encoded(form: re.Pattern[str], parts: str) -> Extractor:
    def values(path: str) -> Values:
        numbers = path if "=" not in path else "/".join(part.rpartition("=")[2] for part in split_path(path))
        matched = form.fullmatch(numbers)
        if matched is None:
            raise InvalidRequest(
                f"the partition {path} is not of the form {parts}; name another {sync_options.HIVE_PARTITION_EXTRACTOR_CLASS}"
            )
        year, *rest = matched.groups()
        return ("-".join([year, *(number.zfill(2) for number in rest)]),)

    return values


_EXTRACTORS: Mapping[str, Extractor] = {
    "NonPartitionedExtractor": lambda path: (),
    "SinglePartPartitionValueExtractor": lambda path: (path.replace("/", "-"),),
    "HiveStylePartitionValueExtractor": _hive_style,
    "MultiPartKeysValueExtractor": _multi_part,
    "SlashEncodedDayPartitionValueExtractor": _slash_encoded(_DAY, "yyyy/MM/dd"),
    "SlashEncodedHourPartitionValueExtractor": _slash_encoded(_HOUR, "yyyy/MM/dd/HH"),
}


@dataclass(frozen=True, slots=True)
class PartitionChanges:
    """Partition changes to apply to a catalog.  added, moved: values -> location; dropped: values."""

    added: Mapping[Values, str]
    moved: Mapping[Values, str]
    dropped: Sequence[Values]

    def __bool__(self) -> bool:
        return bool(self.added or self.moved or self.dropped)


def compare_partitions(
    stored: Mapping[Values, str], catalog_partitions: Mapping[Values, str], deleted: Iterable[Values] = (), *, all_stored: bool
) -> PartitionChanges:
    """Return the changes that bring the partitions of a catalog to those of the table.  stored, known: values ->
    location.

    all_stored: `stored` is complete, so the others are dropped; otherwise `deleted` names those to drop.
    """
    place = without_scheme
    dropped = (
        sorted(values for values in catalog_partitions if values not in stored)
        if all_stored
        else sorted(catalog_partitions.keys() & set(deleted))
    )
    return PartitionChanges(
        added={values: location for values, location in stored.items() if values not in catalog_partitions},
        moved={
            values: there
            for values, there in stored.items()
            if values in catalog_partitions and place(catalog_partitions[values]) != place(there)
        },
        dropped=dropped,
    )


def without_scheme(location: str) -> str:
    """Normalize a location for comparison: `s3://b/t`, `s3a://b/t`; `file:/t`, `file:///t`, `/t` are equal."""
    _, separator, rest = location.partition(":/")
    return (rest if separator else location).strip("/")


def check_width(columns: Sequence[str], path: str, values: Values) -> None:
    """Raise InvalidRequest unless a partition has a value for each partition column."""
    if len(values) != len(columns):
        raise InvalidRequest(
            f"the partition {path} gives {len(values)} values for the columns {', '.join(columns)}; name another "
            f"{sync_options.HIVE_PARTITION_EXTRACTOR_CLASS}, or other {sync_options.HIVE_PARTITION_FIELDS}"
        )

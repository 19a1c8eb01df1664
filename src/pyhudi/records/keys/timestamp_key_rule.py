"""Settings of the timestamp-based key generator: how a time field is converted to a part of the partition path.

If a timestamp generator sets no time zone, Hudi uses that of its JVM. A table must not depend on where a job ran, so
PyHudi uses UTC, which is the default that Hudi documents.

Source: docs/formats/record-keys.md, "Formatted times".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pyhudi.errors import InvalidRequest
from pyhudi.options.table_options import TIME_PREFIXES
from pyhudi.records.joda_timestamps import parse_pattern, time_zone

UNIT_MS = {"DAYS": 86_400_000, "HOURS": 3_600_000, "MINUTES": 60_000, "SECONDS": 1_000, "MILLISECONDS": 1}
UNITS_PER_MS = {"MICROSECONDS": 1_000, "NANOSECONDS": 1_000_000}


class TimeType(StrEnum):
    """Input types of a time field; the names are those of `timestamp.type`."""

    UNIX_TIMESTAMP = "UNIX_TIMESTAMP"
    EPOCHMILLISECONDS = "EPOCHMILLISECONDS"
    EPOCHMICROSECONDS = "EPOCHMICROSECONDS"
    SCALAR = "SCALAR"
    DATE_STRING = "DATE_STRING"
    MIXED = "MIXED"

    @property
    def is_textual(self) -> bool:
        """True if the values are strings to be parsed."""
        return self in (TimeType.DATE_STRING, TimeType.MIXED)


@dataclass(frozen=True, slots=True)
class TimeRule:
    """How a time field is converted to a part of the path.

    Source: docs/formats/record-keys.md, "Formatted times".

    Attributes:
        type: Type of the input values.
        output_pattern: Joda pattern of the path.
        scalar_unit: Unit of the values if type is SCALAR (DAYS ... NANOSECONDS).
        input_patterns: Joda patterns that are tried in order for strings.
        input_zone: Time zone identifier of the input.
        output_zone: Time zone identifier of the path.
        null_zone: Time zone identifier of the text of a null; None for the input zone.
    """

    type: TimeType
    output_pattern: str
    scalar_unit: str = "SECONDS"
    input_patterns: tuple[str, ...] = ()
    input_zone: str = "UTC"
    output_zone: str = "UTC"
    null_zone: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        parse_pattern(self.output_pattern)
        for pattern in self.input_patterns:
            parse_pattern(pattern)
        time_zone(self.input_zone)
        time_zone(self.output_zone)
        if self.scalar_unit not in (*UNIT_MS, *UNITS_PER_MS):
            raise InvalidRequest(f"unknown time unit {self.scalar_unit!r}: use one of {', '.join((*UNIT_MS, *UNITS_PER_MS))}")
        if self.type.is_textual and not self.input_patterns:
            raise InvalidRequest(f"the time type {self.type} needs {TIME_PREFIXES[0]}input.dateformat")

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> TimeRule | None:
        """Read the rule from `hoodie.keygen.timebased.*`, under the current or the old prefix; None if absent."""

        def value(name: str) -> str | None:
            candidates = (properties.get(prefix + name) for prefix in TIME_PREFIXES)
            return next((text for text in candidates if text is not None), None)

        type_, output = value("timestamp.type"), value("output.dateformat")
        if type_ is None and output is None:
            return None
        if type_ is None or output is None:
            missing = "timestamp.type" if type_ is None else "output.dateformat"
            raise InvalidRequest(f"a timestamp key generator needs {TIME_PREFIXES[0]}{missing}")
        if type_.upper() not in TimeType.__members__:
            raise InvalidRequest(f"unknown time type {type_!r}: use one of {', '.join(TimeType)}")
        delimiter = value("input.dateformat.list.delimiter.regex") or ","
        try:
            patterns = [part.strip() for part in re.split(delimiter, value("input.dateformat") or "")]
        except re.error as error:
            raise InvalidRequest(
                f"{TIME_PREFIXES[0]}input.dateformat.list.delimiter.regex is not a valid regular expression: {error}"
            ) from error
        # The common zone takes precedence over the two specific ones, as in Hudi.
        zone = value("timezone")
        input_zone, output_zone = zone or value("input.timezone"), zone or value("output.timezone") or "UTC"
        return cls(
            type=TimeType(type_.upper()),
            output_pattern=output,
            scalar_unit=(value("timestamp.scalar.time.unit") or "SECONDS").upper(),
            input_patterns=tuple(part for part in patterns if part),
            input_zone=input_zone or "UTC",
            output_zone=output_zone,
            null_zone=None if input_zone else output_zone,
        )

    def to_properties(self) -> dict[str, str]:
        """Return the equivalent properties. Time zones are always written, because Hudi's default is that of its JVM."""
        prefix = TIME_PREFIXES[0]
        result = {prefix + "timestamp.type": self.type.value, prefix + "output.dateformat": self.output_pattern}
        if self.type is TimeType.SCALAR:
            result[prefix + "timestamp.scalar.time.unit"] = self.scalar_unit
        if self.input_patterns:
            delimiter = next((mark for mark in (",", ";", "|", "~") if not any(mark in p for p in self.input_patterns)), None)
            if delimiter is None and len(self.input_patterns) > 1:
                raise InvalidRequest("the input patterns contain every supported delimiter (, ; | ~)")
            result[prefix + "input.dateformat"] = (delimiter or "").join(self.input_patterns)
            result[prefix + "input.dateformat.list.delimiter.regex"] = "" if delimiter is None else re.escape(delimiter)
        result[prefix + "input.timezone"] = self.input_zone
        result[prefix + "output.timezone"] = self.output_zone
        return result

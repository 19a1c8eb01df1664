"""Table versions and timeline layouts, and the features of each.

    table version   0   1..7   8   9 (release 1.1)
    layout          0   1      2   2

Readers and writers query features of a version; no other module compares version numbers. A table whose properties have
no table version has the current one, 8. A table without a layout is invalid. Not done here: upgrade or downgrade.
"""

from __future__ import annotations

from enum import IntEnum

from pyhudi.errors import CorruptData, Unsupported
from pyhudi.format.stored_numbers import parse_digits
from pyhudi.options.table_options import LAYOUT, VERSION


class TimelineLayout(IntEnum):
    """Layout of the timeline's files."""

    V0 = 0
    V1 = 1
    V2 = 2

    @property
    def has_completion_time_in_names(self) -> bool:
        """`t_c.commit`; without it the completion time is the modification time of `t.commit`."""
        return self is TimelineLayout.V2

    @property
    def has_timeline_folder(self) -> bool:
        """Instants are stored in `.hoodie/<timeline path>`; without it in `.hoodie` itself, among other files."""
        return self is TimelineLayout.V2

    @property
    def has_clustering_action(self) -> bool:
        """A pending clustering has its own action; without it, it is a pending replacecommit with a plan."""
        return self is TimelineLayout.V2

    @property
    def has_lsm_history(self) -> bool:
        """Archived instants form an LSM timeline (Parquet files and a manifest); without it log files in the archive folder."""
        return self is TimelineLayout.V2


class TableVersion(IntEnum):
    """`hoodie.table.version`."""

    ZERO = 0
    ONE = 1
    TWO = 2
    THREE = 3
    FOUR = 4
    FIVE = 5
    SIX = 6
    SEVEN = 7
    EIGHT = 8
    NINE = 9

    @classmethod
    def current(cls) -> TableVersion:
        """The version of the tables PyHudi creates, and of a table without the property."""
        return cls.EIGHT

    @property
    def layout(self) -> TimelineLayout:
        """The timeline layout of the version."""
        if self >= TableVersion.EIGHT:
            return TimelineLayout.V2
        return TimelineLayout.V0 if self is TableVersion.ZERO else TimelineLayout.V1

    @property
    def is_readable(self) -> bool:
        """PyHudi reads tables of this version."""
        return self in (TableVersion.SIX, TableVersion.EIGHT, TableVersion.NINE)

    @property
    def precedes_readable(self) -> bool:
        """PyHudi reads neither tables of this version nor of an earlier one."""
        return self < min(version for version in TableVersion if version.is_readable)

    @property
    def is_writable(self) -> bool:
        """PyHudi writes tables of this version."""
        return self in (TableVersion.EIGHT, TableVersion.NINE)

    @property
    def has_hudi_types(self) -> bool:
        """Tables may have the column types of Hudi 1.2 (`format.hudi_types`)."""
        return self >= TableVersion.EIGHT

    @property
    def has_one_log_file_per_commit(self) -> bool:
        """A log file is named after the delta commit that wrote it; without it after its base file."""
        return self >= TableVersion.EIGHT

    @property
    def has_merge_mode(self) -> bool:
        """The properties name a record merge mode; without it the payload class determines it."""
        return self >= TableVersion.EIGHT

    @property
    def has_ordering_fields(self) -> bool:
        """Several columns may order records, and only `hoodie.table.ordering.fields` names them.

        Without it there is one ordering field, which `hoodie.table.precombine.field` names as well. Readers accept
        either key in any version: release 1.0 reads the older key only, and release 1.1 writes only the newer key into
        tables of every version.
        """
        return self >= TableVersion.NINE

    @property
    def prefixes_single_keys(self) -> bool:
        """The key generator COMPLEX writes `field:value` for a record key of one field too, as for several."""
        return self >= TableVersion.NINE

    @property
    def names_format(self) -> bool:
        """`hoodie.table.format` is written and declares Hudi's own format; without it no other format exists."""
        return self >= TableVersion.NINE

    @property
    def merges_by_modes(self) -> bool:
        """Merge mode, partial update mode and merge properties replace the payload class.

        A delete without an ordering value does not affect the records after it.
        """
        return self >= TableVersion.NINE

    @property
    def is_upgraded_by_default(self) -> bool:
        """A write of Hudi 1.1 or newer upgrades the table, unless an option prevents it."""
        return self < TableVersion.NINE

    @property
    def has_hbase_index(self) -> bool:
        """Writers may store record locations in an HBase table; release 1.1 (version 9) removed this index."""
        return self < TableVersion.NINE

    @property
    def has_index_versions(self) -> bool:
        """Every index definition declares the version of its layout; without it only one layout exists."""
        return self >= TableVersion.NINE

    def may_hold_older_files(self, initial: str | None) -> bool:
        """Return whether releases that do not know version 9 may have written files of a table of this version.

        initial: Value of `hoodie.table.initial.version`; None without it.
        """
        is_new = initial is not None and initial.isascii() and initial.isdigit() and int(initial[:12]) >= TableVersion.NINE
        return not (is_new and self >= TableVersion.NINE)

    @property
    def has_bucket_rescale(self) -> bool:
        """Readers know the operation BUCKET_RESCALE; readers of older tables reject a commit of it."""
        return self >= TableVersion.NINE

    @property
    def has_local_timestamps(self) -> bool:
        """The release that writes such tables supports timestamps without a zone; without it they read as numbers."""
        return self >= TableVersion.NINE

    @property
    def has_open_ranges(self) -> bool:
        """Incremental queries exclude what completed at their start; without it they include it."""
        return self >= TableVersion.NINE


def written_versions() -> str:
    """Return the versions that PyHudi writes, for messages."""
    return " and ".join(str(int(version)) for version in TableVersion if version.is_writable)


def parse_table_version(text: str | None) -> TableVersion:
    """Return the value of `hoodie.table.version`; None, for a missing key, is the current version.

    Raises:
        Unsupported: A version that is newer than all known ones.
        CorruptData: The text is not a number.
    """
    if text is None:
        return TableVersion.current()
    number = _number(VERSION.stored_as, text)
    try:
        return TableVersion(number)
    except ValueError:
        raise Unsupported(
            f"table version {number} is not supported: the newest known version is {max(TableVersion).value}"
        ) from None


def parse_timeline_layout(text: str) -> TimelineLayout:
    """Return the value of `hoodie.timeline.layout.version`. Raises as `parse_table_version`."""
    number = _number(LAYOUT.stored_as, text)
    try:
        return TimelineLayout(number)
    except ValueError:
        raise Unsupported(
            f"timeline layout {number} is not supported: the newest known layout is {max(TimelineLayout).value}"
        ) from None


def _number(key: str, text: str) -> int:
    number = parse_digits(text.strip(), 12)
    if number is None:
        raise CorruptData(f"{key} is not a number", found=text[:100])
    return number

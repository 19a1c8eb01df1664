"""Table versions and timeline layouts, as questions about what a table of that version has.

    table version   0   1..7   8   9 (release 1.1)
    layout          0   1      2   2

Readers and writers ask a version what it has; no other module compares version numbers.  A table whose properties name no
table version has the current one, 8; one that names no layout is not a table.  What this does not do: upgrade or downgrade.
"""

from __future__ import annotations

from enum import IntEnum

from pyhudi.errors import CorruptData, Unsupported


class TimelineLayout(IntEnum):
    """How the timeline is laid out in files."""

    V0 = 0
    V1 = 1
    V2 = 2

    @property
    def has_completion_time_in_names(self) -> bool:
        """`t_c.commit`; without it the completion time is the modification time of `t.commit`."""
        return self is TimelineLayout.V2

    @property
    def has_timeline_folder(self) -> bool:
        """Instants live in `.hoodie/<timeline path>`; without it in `.hoodie` itself, among other files."""
        return self is TimelineLayout.V2

    @property
    def has_avro_commit_metadata(self) -> bool:
        """commit, deltacommit and replacecommit files hold Avro; without it JSON."""
        return self is TimelineLayout.V2

    @property
    def has_clustering_action(self) -> bool:
        """A pending clustering has an action of its own; without it, it is a pending replacecommit with a plan."""
        return self is TimelineLayout.V2

    @property
    def has_lsm_history(self) -> bool:
        """Archived instants are Parquet files under a manifest; without it log files in the archive folder."""
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
        """The version of the tables PyHudi creates, and of a table that does not say."""
        return cls.EIGHT

    @property
    def layout(self) -> TimelineLayout:
        """The timeline layout that belongs to the version."""
        if self >= TableVersion.EIGHT:
            return TimelineLayout.V2
        return TimelineLayout.V0 if self is TableVersion.ZERO else TimelineLayout.V1

    @property
    def is_readable(self) -> bool:
        """PyHudi reads tables of this version."""
        return self in (TableVersion.SIX, TableVersion.EIGHT, TableVersion.NINE)

    @property
    def precedes_readable(self) -> bool:
        """PyHudi reads no table of this version, and none of an earlier one."""
        return self < min(version for version in TableVersion if version.is_readable)

    @property
    def is_writable(self) -> bool:
        """PyHudi writes tables of this version."""
        return self in (TableVersion.EIGHT, TableVersion.NINE)

    @property
    def has_one_log_file_per_commit(self) -> bool:
        """A log file is named after the delta commit that wrote it; without it after the base file it belongs to."""
        return self >= TableVersion.EIGHT

    @property
    def has_rollback_blocks(self) -> bool:
        """A rollback appends a command block to logs; without it the log files of the failed instant are deleted."""
        return self < TableVersion.EIGHT

    @property
    def has_avro_delete_blocks(self) -> bool:
        """Deletes are Avro (block version 3); without it Kryo (versions 1 and 2)."""
        return self >= TableVersion.EIGHT

    @property
    def has_merge_mode(self) -> bool:
        """The properties name a record merge mode; without it the payload class decides."""
        return self >= TableVersion.EIGHT

    @property
    def has_ordering_fields(self) -> bool:
        """Several columns may order records, and `hoodie.table.ordering.fields` alone names them; without it there is one, which
        `hoodie.table.precombine.field` names too.

        Readers take either key in any version: release 1.0 knows the older one alone, and release 1.1 writes the newer one alone
        into tables of every version.
        """
        return self >= TableVersion.NINE

    @property
    def prefixes_single_keys(self) -> bool:
        """Whether the key generator COMPLEX writes `field:value` for a record key of one field too, as for several."""
        return self >= TableVersion.NINE

    @property
    def names_format(self) -> bool:
        """Creators say in `hoodie.table.format` that the files are Hudi's own; without it nothing else is known."""
        return self >= TableVersion.NINE

    @property
    def merges_by_modes(self) -> bool:
        """The merge mode, an update mode and merge properties say what a payload class says without it, and a delete without an
        ordering value is forgotten by what follows it.
        """
        return self >= TableVersion.NINE

    @property
    def has_hbase_index(self) -> bool:
        """Writers may keep the places of records in a table of HBase; release 1.1, which brought version 9, took that away."""
        return self < TableVersion.NINE

    @property
    def has_index_versions(self) -> bool:
        """Every index definition names the version of its layout; without it there is one that need not be named."""
        return self >= TableVersion.NINE

    @property
    def has_local_timestamps(self) -> bool:
        """The release that writes such tables has columns of timestamps without a zone; without it they read as numbers."""
        return self >= TableVersion.NINE

    @property
    def has_open_ranges(self) -> bool:
        """Incremental queries leave out what completed at their start; without it they take it in."""
        return self >= TableVersion.NINE


def written_versions() -> str:
    """The versions that PyHudi writes, for messages."""
    return " and ".join(str(int(version)) for version in TableVersion if version.is_writable)


def parse_table_version(text: str | None) -> TableVersion:
    """The value of `hoodie.table.version`; None, for an absent key, is the current version.

    Raises Unsupported for a version that does not exist yet, CorruptData for a text that is not a number.
    """
    if text is None:
        return TableVersion.current()
    number = _number("hoodie.table.version", text)
    try:
        return TableVersion(number)
    except ValueError:
        raise Unsupported(f"Table version {number} is newer than the newest that is known, {max(TableVersion).value}.") from None


def parse_timeline_layout(text: str) -> TimelineLayout:
    """The value of `hoodie.timeline.layout.version`.  Raises as `parse_table_version`."""
    number = _number("hoodie.timeline.layout.version", text)
    try:
        return TimelineLayout(number)
    except ValueError:
        raise Unsupported(f"Timeline layout {number} is newer than the newest known, {max(TimelineLayout).value}.") from None


def _number(key: str, text: str) -> int:
    stripped = text.strip()
    # A dozen digits cover every version that will ever be, and keep int() from chewing on a damaged megabyte.
    if not (stripped.isascii() and stripped.isdigit() and len(stripped) <= 12):
        raise CorruptData(f"{key} is not a number", found=text[:100])
    return int(stripped)

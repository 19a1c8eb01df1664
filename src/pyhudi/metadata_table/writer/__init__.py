"""Writer of the metadata table (MDT). Format: docs/formats/metadata-table.md.

    metadata_settings.py      which indexes a writer enables, and their sizes
    metadata_store.py         the metadata table as a table: delta commits, their rollback, creation and drop
    metadata_commit.py        the effect of a commit, clean, rollback or restore of the table, for all index types
    overlapping_commits.py    reconciliation with commits whose times overlap
    sole_writer.py            since when PyHudi is the only writer
    initialize_partitions.py  building indexes from a snapshot of the table, for all index types
    metadata_services.py      its compaction, cleaning and archival

All changes happen under the table's lock: the metadata table has one writer at a time. A partition listed in the
table's properties is correct at every commit, or it is dropped before the commit. Readers trust it without
verification.
"""

"""The metadata table (MDT) of a table, as its writers keep it.  Source: docs/formats/metadata-table.md.

    kinds/         the kinds of indexes in it, one file each, behind one interface
    settings.py    which indexes a writer wants, and how large
    store.py       the metadata table as a table: its delta commits, undoing one; making and dropping the whole
    mirror.py      what a commit, a clean, a rollback of the table make it say: a loop over the kinds
    overlap.py     how that stands beside commits whose times overlap
    initialise.py  building indexes of a table that has none, from a state of the table: a loop over the kinds
    services.py    its own compaction, cleaning and archival

Everything is done under the table's lock: the metadata table has one writer at a time.  A partition that is listed in the table's
properties is true at every commit, or it is dropped before the commit; readers trust it without looking.
"""

"""The metadata table (MDT) of a table, as its writers keep it.  Source: storage format, "Metadata table".

    settings.py    which partitions a writer wants, and how large
    store.py       one delta commit of the metadata table; undoing one; making and dropping the whole
    mirror.py      what a commit, a clean, a rollback of the table make it say
    initialise.py  building partitions of a table that has none: from a listing, footers and keys
    services.py    its own compaction, cleaning and archival
    defined.py     secondary and expression indexes as their definitions say
    prepare.py     what these have to be told of a commit, found out before it takes the lock

Everything is done under the table's lock: the metadata table has one writer at a time.  A partition that is listed in the table's
properties is true at every commit, or it is dropped before the commit; readers trust it without looking.
"""

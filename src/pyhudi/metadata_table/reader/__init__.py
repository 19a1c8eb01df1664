"""The metadata table (MDT) of a table, as a reader sees it.  Source: docs/formats/metadata-table.md.

    validity.py   which of its log blocks count, given the timelines of both tables
    files.py      its HFiles and log blocks: opened once, small ones held in bounded memory
    records.py    `MetadataTable`: keys, prefixes or whole partitions -> cells, older layers and newer ones apart
    merge.py      several layers of one key -> what they say together
    indexes.py    typed answers: files, column ranges, Bloom filters, locations of record keys, secondary keys
    listing.py    the table's listing from it, and what happens when it is damaged

Values are decoded by the schema that stands with them.  Nothing here writes.
"""

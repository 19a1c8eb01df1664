"""What the metadata table's records say, as Arrow columns and back.  Source: docs/formats/metadata-table.md.

    schema.py       the record schema, types, payloads       partitions.py  partitions, file groups, their first log file
    codec.py        values <-> one payload column            wrapped.py     bounds of columns, whatever their type
    files.py  column_stats.py  bloom_filters.py  record_index.py  secondary_index.py
                    one kind of record each, and how two of one key are merged: where nothing is said, the newer one counts

Records are stored in HFiles (`format/hfile`), keys apart from values.  What this does not do: find file slices, read or write
files, or decide which log blocks count.
"""

"""Reader of the metadata table (MDT). Format: docs/formats/metadata-table.md.

    metadata_file_cache.py       its HFiles and log blocks: opened once, small files cached in bounded memory
    file_group_reader.py         keys, prefixes or whole file groups -> cells, in layers
    key_ranges.py                file groups in ascending ranges of keys
    metadata_reader.py           `MetadataTable`: lookups in partitions, and which log blocks are valid
    cell_merge.py                merge of the layers of one key
    index_lookups.py             typed lookups: files, column ranges, Bloom filters, record locations, secondary keys
    stored_index_definitions.py  loading and storing of the index definitions
    metadata_listing.py          the table's file listing, with fallback to directories when the metadata table is
                                 damaged

Values are decoded by the schema stored with them. Only `stored_index_definitions.py` writes.
"""

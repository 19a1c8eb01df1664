"""Codecs of metadata table records: payload bytes to Arrow columns and back. Format: docs/formats/metadata-table.md.

    metadata_schema.py      record schema, record types, payloads
    metadata_partitions.py  partitions, file groups, the first log file of a group
    payload_codec.py        record values <-> one payload column
    value_wrappers.py       bounds of columns of every type
    files_codec.py  column_stats_codec.py  bloom_filter_codec.py  record_index_codec.py  secondary_index_codec.py
                            one record type each, and the merge of two records of one key (default: the newer one wins)

Records are stored in HFiles (`format/hfile`), keys apart from values. Finding file slices, file IO and the validity of
log blocks belong to `metadata_table.reader`.
"""

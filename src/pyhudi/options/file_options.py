"""Options of base files and log files."""

from __future__ import annotations

from pyhudi.options.declaration import Option

PARQUET_COMPRESSION_CODEC = Option(
    "hoodie.parquet.compression.codec",
    ("gzip", "zstd", "snappy", "uncompressed", "lz4_raw"),
    "zstd",
    "compression of base files, Parquet log blocks and the history",
    origin="table",
)
MERGE_USE_RECORD_POSITIONS = Option(
    "hoodie.merge.use.record.positions",
    bool,
    "true",
    "logs and base files are merged by record positions where they have them",
    origin="table",
)
WRITE_FORMAT = Option(
    "hoodie.base.file.format",
    ("PARQUET", "ORC", "HFILE"),
    None,
    "format of the base files of a new table, and of those that a write or a service makes in a table that may have "
    "several (hoodie.table.multiple.base.file.formats.enable); unset: the table's; HFILE is refused",
    origin="table",
)
PARQUET_BLOCK_SIZE = Option("hoodie.parquet.block.size", int, "125829120", "bytes of a row group", at_least=1, origin="table")
PARQUET_PAGE_SIZE = Option("hoodie.parquet.page.size", int, "1048576", "bytes of a page", at_least=1, origin="table")
PARQUET_DICTIONARY_ENABLED = Option(
    "hoodie.parquet.dictionary.enabled", bool, "true", "columns are encoded by dictionaries where that pays", origin="table"
)
PARQUET_OUTPUTTIMESTAMPTYPE = Option(
    "hoodie.parquet.outputtimestamptype", ("TIMESTAMP_MICROS",), "TIMESTAMP_MICROS", "how timestamps are stored", origin="table"
)
PARQUET_BLOOM_FILTER_ENABLED = Option(
    "hoodie.parquet.bloom.filter.enabled", bool, "true", "base files carry a Bloom filter of their record keys", origin="table"
)
BLOOM_INDEX_FILTER_TYPE = Option(
    "hoodie.bloom.index.filter.type",
    ("SIMPLE", "DYNAMIC_V0"),
    "DYNAMIC_V0",
    "a Bloom filter of one size, or one that grows with its file",
    origin="table",
)
INDEX_BLOOM_NUM_ENTRIES = Option(
    "hoodie.index.bloom.num_entries",
    int,
    "60000",
    "keys that a Bloom filter is sized for at first; for fewer where it can grow and a file has less than half as many",
    at_least=1,
    origin="table",
)
INDEX_BLOOM_FPP = Option(
    "hoodie.index.bloom.fpp", float, "0.000000001", "rate of wrong hits that a Bloom filter is sized for", origin="table"
)
BLOOM_INDEX_FILTER_DYNAMIC_MAX_ENTRIES = Option(
    "hoodie.bloom.index.filter.dynamic.max.entries",
    int,
    "100000",
    "keys up to which a growing Bloom filter grows",
    at_least=1,
    origin="table",
)
LOGFILE_DATA_BLOCK_FORMAT = Option(
    "hoodie.logfile.data.block.format", ("avro", "parquet", "hfile"), "avro", "format of data blocks in log files", origin="table"
)
LOGFILE_DATA_BLOCK_MAX_SIZE = Option(
    "hoodie.logfile.data.block.max.size", int, "268435456", "bytes of a data block", at_least=1, origin="table"
)
LOGFILE_MAX_SIZE = Option(
    "hoodie.logfile.max.size",
    int,
    "1073741824",
    "bytes from which on a log file takes no further block: its next version does",
    at_least=1,
    origin="table",
)
WRITE_RECORD_POSITIONS = Option(
    "hoodie.write.record.positions",
    bool,
    "true",
    "log blocks store the row numbers of their records in the base file",
    origin="table",
)
ORC_COMPRESSION_CODEC = Option(
    "hoodie.orc.compression.codec",
    ("ZLIB", "ZSTD", "SNAPPY", "NONE"),
    "ZLIB",
    "compression of base files where these are ORC",
    origin="table",
)
ORC_STRIPE_SIZE = Option(
    "hoodie.orc.stripe.size", int, "67108864", "bytes of a stripe of ORC base files", at_least=1, origin="table"
)

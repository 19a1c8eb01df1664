"""Options of reads, queries and streams."""

from __future__ import annotations

from pyhudi.options.declaration import Option

FILE_INDEX_DATA_SKIPPING_FAILURE_MODE = Option(
    "hoodie.fileIndex.dataSkippingFailureMode",
    ("fallback", "strict"),
    "fallback",
    "a filtered read with damaged indexes reads everything, or fails",
    origin="table",
)
INDEXED_IN_UTC = Option(
    "pyhudi.expression.index.utc",
    bool,
    "false",
    "all writers evaluated expression indexes in UTC, as filters are; otherwise indexes that depend on the time zone "
    "are not used",
    origin="table",
)
ENABLE_DATA_SKIPPING = Option(
    "hoodie.enable.data.skipping", bool, "true", "a filtered read prunes files with indexes and statistics", origin="table"
)
READ_CHECKSUMS = Option(
    "pyhudi.read.checksums",
    ("always", "once", "never"),
    "once",
    "reads verify page checksums of Parquet base files at each read of a column of a row group, once for each file of "
    "the same path, size and modification time while the table is open, or never; writes and table services verify always",
    origin="table",
)

QUERY_TYPE = Option(
    "hoodie.datasource.query.type",
    ("snapshot", "read_optimized", "incremental"),
    "snapshot",
    "query type: the latest state, base files only, or what a range of instants changed",
    aliases=("hoodie.datasource.view.type",),
    chooses="read",
)
INCREMENTAL_FORMAT = Option(
    "hoodie.datasource.query.incremental.format",
    ("latest_state", "cdc"),
    "latest_state",
    "an incremental query returns records, or every change of them (CDC)",
    chooses="read",
)
AS_OF = Option("as.of.instant", str, None, "a snapshot is that of this instant or time", chooses="read")
READ_BEGIN_INSTANTTIME = Option(
    "hoodie.datasource.read.begin.instanttime", str, None, "where an incremental query begins", chooses="read"
)
READ_END_INSTANTTIME = Option(
    "hoodie.datasource.read.end.instanttime", str, None, "where an incremental query ends; unset: now", chooses="read"
)
RANGE_VERSION = Option(
    "hoodie.datasource.read.incr.table.version",
    ("6", "8", "9"),
    None,
    "bounds of an incremental query: completion times (8, 9), or request times with the start excluded (6); unset: by "
    "the version of the table",
    origin="table",
)
READ_INCR_FALLBACK_FULLTABLESCAN_ENABLE = Option(
    "hoodie.datasource.read.incr.fallback.fulltablescan.enable",
    bool,
    "true",
    "if files of an incremental query were cleaned, it reads records of the latest state instead; false raises an error",
    origin="table",
)
VALUES_FROM_PATH = Option(
    "hoodie.datasource.read.extract.partition.values.from.path",
    bool,
    "false",
    "partition columns are read from the path alone: an empty text is null, and an invalid path is an error",
    origin="table",
)
COLUMNS = Option("pyhudi.columns", str, None, "columns that a read returns; unset: all", chooses="read")
FILTER = Option("pyhudi.filter", str, None, "filter on the rows of a read", chooses="read")

BLOB_ROOTS = Option(
    "pyhudi.blob.roots",
    str,
    None,
    "folders, separated by commas, below which BLOB values may refer to files that `read_blobs` reads; unset: none",
)

START_OFFSET = Option(
    "hoodie.datasource.streaming.startOffset",
    str,
    "earliest",
    "where a stream begins: earliest, latest, or after a completion time",
    chooses="read",
)

STREAM_MAX_INSTANTS = Option(
    "pyhudi.stream.max.instants", int, None, "instants that a batch of a stream reads at most", at_least=1, origin="table"
)
STREAM_MAX_FILES = Option(
    "pyhudi.stream.max.files", int, None, "files that a batch of a stream reads at most", at_least=1, origin="table"
)
STREAM_MAX_BYTES = Option(
    "pyhudi.stream.max.bytes", int, None, "bytes that a batch of a stream reads at most", at_least=1, origin="table"
)

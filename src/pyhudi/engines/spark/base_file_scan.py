"""Spark's own Parquet scan of base files.

The scan states every option that could change rows, so that settings of the session have no effect: a file that is
missing or unreadable is an error, and times are read as they are stored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import types as T

from pyhudi.engines.spark.type_conversion import DataFrame, SparkSession
from pyhudi.errors import InvalidRequest
from pyhudi.storage.base import Storage
from pyhudi.tasks.base_file_reader import missing_error

_PAGES_COMPARED = "parquet.page.verify-checksum.enabled"

_OPTIONS = {
    # A path is one file, also where a folder on the way to it looks like a partition.
    "recursiveFileLookup": "true",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "mergeSchema": "false",
    # Files contain the proleptic Gregorian calendar.
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}

_NO_FILE_SYSTEM = ("No FileSystem for scheme", "UnsupportedFileSystemException", "FileSystem not found")
_MISSING = re.compile(r"\[PATH_NOT_FOUND\] Path does not exist: (.*?)\. SQLSTATE")


def scan_base_files(
    session: SparkSession, storage: Storage, columns: T.StructType, paths: Sequence[str], *, verify_pages: bool
) -> DataFrame:
    """Define a scan of base files.

    Args:
        columns: Columns to read, with the types in the files.
        paths: Paths within the table.
        verify_pages: Verify page checksums.

    Raises:
        TableState: A file is missing.
        InvalidRequest: The session cannot access the table's storage.
    """
    reader = session.read.schema(columns).options(**_OPTIONS).option(_PAGES_COMPARED, str(verify_pages).lower())
    try:
        return reader.parquet(*map(storage.absolute, paths))
    except Exception as error:
        if any(sign in str(error) for sign in _NO_FILE_SYSTEM):
            raise _no_file_system(storage.uri) from error
        if isinstance(error, AnalysisException) and (missing := _MISSING.search(str(error))):
            raise missing_error(missing[1]) from error
        raise


def _no_file_system(uri: str) -> InvalidRequest:
    scheme = uri.partition(":")[0]
    return InvalidRequest(
        f"{uri}: Spark scans base files itself, and its session has no file system for {scheme}://. Start it with Hadoop's "
        'package for that store and its fs.* settings (docs/object-stores.md), or read with spark.read.format("pyhudi") and the '
        "storage options as pyhudi.storage.<name>, which reads with PyHudi's own client"
    )

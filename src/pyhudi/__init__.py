"""PyHudi: Apache Hudi 1.0 tables, read and write, in Python.

    import pyhudi as hp
    t = hp.Table.create("/data/trips", record_key="id", partition_by="city", ordering="ts")
    t.upsert(frame)
    t.scan(filter="fare > 10").to_arrow()

On Spark: `from pyhudi import spark as hs`.
"""

from __future__ import annotations

import logging

from pyhudi.api import Scan, Table
from pyhudi.errors import (
    CommitUnknown,
    CorruptData,
    HudiError,
    InstantNotFound,
    Internal,
    InvalidRequest,
    ServiceFailed,
    StorageUnavailable,
    TableExists,
    TableNotFound,
    TableState,
    Unsupported,
    WriteConflict,
)
from pyhudi.execute.progress import set_reporter
from pyhudi.operations.observe import OperationEvent, add_listener
from pyhudi.operations.results import WriteResult
from pyhudi.records.mergers import RecordMerger, record_by_record, register_merger

__version__ = "0.1.0"

__all__ = [
    "CommitUnknown",
    "CorruptData",
    "HudiError",
    "InstantNotFound",
    "Internal",
    "InvalidRequest",
    "OperationEvent",
    "RecordMerger",
    "Scan",
    "ServiceFailed",
    "StorageUnavailable",
    "Table",
    "TableExists",
    "TableNotFound",
    "TableState",
    "Unsupported",
    "WriteConflict",
    "WriteResult",
    "add_listener",
    "record_by_record",
    "register_merger",
    "set_reporter",
]

logging.getLogger("pyhudi").addHandler(logging.NullHandler())

"""PyHudi: Apache Hudi 1.0 tables, read and write, in Python.

    import pyhudi as hp
    t = hp.Table.create("/data/trips", record_key="id", partition_by="city", ordering="ts")
    t.upsert(frame)
    t.scan(filter="fare > 10").to_arrow()

On Spark: `from pyhudi import spark as hs`.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyhudi.api import Scan, Table
    from pyhudi.bootstrapping import bootstrap
    from pyhudi.errors import (
        CommitUnknown,
        CorruptData,
        EngineFailed,
        HudiError,
        InstantNotFound,
        Internal,
        InvalidRequest,
        ServiceFailed,
        SnapshotOutdated,
        StorageFull,
        StorageUnavailable,
        TableExists,
        TableNotFound,
        TableState,
        Unsupported,
        WriteConflict,
    )
    from pyhudi.execute.progress import set_reporter
    from pyhudi.lazy_frame import scan_polars
    from pyhudi.operations.action.observe import OperationEvent, add_listener
    from pyhudi.operations.action.results import WriteResult
    from pyhudi.plan.clustering import register_clustering_strategy
    from pyhudi.plan.compaction import register_compaction_strategy
    from pyhudi.plugins import load_plugin
    from pyhudi.records.mergers import RecordMerger, record_by_record, register_merger, register_payload
    from pyhudi.restoring import restore_properties
    from pyhudi.statements import Catalog, register, sql
    from pyhudi.storage.time_generators import register_time_generator

__version__ = "0.1.0"

__all__ = [
    "Catalog",
    "CommitUnknown",
    "CorruptData",
    "EngineFailed",
    "HudiError",
    "InstantNotFound",
    "Internal",
    "InvalidRequest",
    "OperationEvent",
    "RecordMerger",
    "Scan",
    "ServiceFailed",
    "SnapshotOutdated",
    "StorageFull",
    "StorageUnavailable",
    "Table",
    "TableExists",
    "TableNotFound",
    "TableState",
    "Unsupported",
    "WriteConflict",
    "WriteResult",
    "add_listener",
    "bootstrap",
    "load_plugin",
    "record_by_record",
    "register",
    "register_clustering_strategy",
    "register_compaction_strategy",
    "register_merger",
    "register_payload",
    "register_time_generator",
    "restore_properties",
    "scan_polars",
    "set_reporter",
    "sql",
]

_HOMES = {
    **dict.fromkeys(("Scan", "Table"), "pyhudi.api"),
    "bootstrap": "pyhudi.bootstrapping",
    "restore_properties": "pyhudi.restoring",
    "WriteResult": "pyhudi.operations.action.results",
    "scan_polars": "pyhudi.lazy_frame",
    "set_reporter": "pyhudi.execute.progress",
    **dict.fromkeys(("OperationEvent", "add_listener"), "pyhudi.operations.action.observe"),
    **dict.fromkeys(("Catalog", "register", "sql"), "pyhudi.statements"),
    "load_plugin": "pyhudi.plugins",
    "register_clustering_strategy": "pyhudi.plan.clustering",
    "register_compaction_strategy": "pyhudi.plan.compaction",
    "register_time_generator": "pyhudi.storage.time_generators",
    **dict.fromkeys(("RecordMerger", "record_by_record", "register_merger", "register_payload"), "pyhudi.records.mergers"),
}
"""Where the names are that do not stand in `pyhudi.errors`."""


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: a Spark worker needs the tasks alone, and starts in half the time."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES.get(name, "pyhudi.errors")), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


logging.getLogger("pyhudi").addHandler(logging.NullHandler())

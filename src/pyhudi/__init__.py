"""PyHudi: read and write Apache Hudi 1.0 tables in Python.

    import pyhudi as hp
    t = hp.Table.create("/data/trips", record_key="id", partition_by="city", ordering="ts")
    t.upsert(frame)
    t.scan(filter="fare > 10").to_arrow()

On Spark: `from pyhudi import spark as hs`.
"""

from __future__ import annotations

import logging
from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyhudi.api.polars import scan_polars
    from pyhudi.api.table import Scan, Table
    from pyhudi.api.variants import variant_from_json, variant_get, variant_to_json
    from pyhudi.api.write_function import write
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
        ValidationFailed,
        WriteConflict,
    )
    from pyhudi.features.bootstrap.bootstrap_table import bootstrap
    from pyhudi.features.catalogs.catalog import Catalog
    from pyhudi.features.catalogs.resolver import open
    from pyhudi.features.commit_callbacks.commit_message import CommitMessage
    from pyhudi.features.commit_callbacks.receivers import register_commit_callback
    from pyhudi.features.ingestion.ingest_job import Ingest
    from pyhudi.features.recovery.restore_table_properties import restore_properties
    from pyhudi.features.validators.validator import Validator, register_validator
    from pyhudi.operations.commit.events import OperationEvent, add_listener
    from pyhudi.operations.commit.results import WriteResult
    from pyhudi.options.plugins import load_plugin
    from pyhudi.planning.clustering import register_clustering_strategy
    from pyhudi.planning.compaction import register_compaction_strategy
    from pyhudi.records.mergers import RecordMerger, record_by_record, register_merger, register_payload
    from pyhudi.records.plain_values import lit
    from pyhudi.sql_engine import register, sql
    from pyhudi.storage.time_generators import register_time_generator
    from pyhudi.tasks.progress import set_reporter

__version__ = "0.1.0"

__all__ = [
    "Catalog",
    "CommitMessage",
    "CommitUnknown",
    "CorruptData",
    "EngineFailed",
    "HudiError",
    "Ingest",
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
    "ValidationFailed",
    "Validator",
    "WriteConflict",
    "WriteResult",
    "add_listener",
    "bootstrap",
    "lit",
    "load_plugin",
    "open",
    "record_by_record",
    "register",
    "register_clustering_strategy",
    "register_commit_callback",
    "register_compaction_strategy",
    "register_merger",
    "register_payload",
    "register_time_generator",
    "register_validator",
    "restore_properties",
    "scan_polars",
    "set_reporter",
    "sql",
    "variant_from_json",
    "variant_get",
    "variant_to_json",
    "write",
]

_CAPABILITIES = {
    "Catalog": "catalogs",
    "CommitMessage": "commit_callbacks",
    "Ingest": "ingestion",
    "Validator": "validators",
    "bootstrap": "bootstrap",
    "open": "catalogs",
    "register_commit_callback": "commit_callbacks",
    "register_validator": "validators",
    "restore_properties": "recovery",
}
"""Functions and classes provided by optional features, see `pyhudi.features`."""

_EXPORTED_FROM = {
    **dict.fromkeys(("Scan", "Table"), "pyhudi.api.table"),
    "WriteResult": "pyhudi.operations.commit.results",
    "scan_polars": "pyhudi.api.polars",
    "write": "pyhudi.api.write_function",
    **dict.fromkeys(("variant_from_json", "variant_get", "variant_to_json"), "pyhudi.api.variants"),
    "set_reporter": "pyhudi.tasks.progress",
    **dict.fromkeys(("OperationEvent", "add_listener"), "pyhudi.operations.commit.events"),
    **dict.fromkeys(("register", "sql"), "pyhudi.sql_engine"),
    "lit": "pyhudi.records.plain_values",
    "load_plugin": "pyhudi.options.plugins",
    "register_clustering_strategy": "pyhudi.planning.clustering",
    "register_compaction_strategy": "pyhudi.planning.compaction",
    "register_time_generator": "pyhudi.storage.time_generators",
    **dict.fromkeys(("RecordMerger", "record_by_record", "register_merger", "register_payload"), "pyhudi.records.mergers"),
}
"""Modules of the public names that are not defined in `pyhudi.errors`."""


def __getattr__(name: str) -> Any:
    """Import public names lazily: a Spark worker imports only the tasks and starts in half the time."""
    if name not in __all__:
        from pyhudi.api.attribute_hints import missing_name_message

        raise AttributeError(missing_name_message(name), name=name)
    if name in _CAPABILITIES:
        value = import_module("pyhudi.features").public_function(_CAPABILITIES[name], name)
    else:
        value = getattr(import_module(_EXPORTED_FROM.get(name, "pyhudi.errors")), name)
    if isinstance(value, FunctionType):
        from pyhudi.api.argument_types import checked

        value = checked(value)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


logging.getLogger("pyhudi").addHandler(logging.NullHandler())

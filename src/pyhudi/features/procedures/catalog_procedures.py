"""The procedure that syncs a table to a Hive metastore."""

from __future__ import annotations

from pyhudi.errors import Unsupported
from pyhudi.features.procedures.procedure import Parameter, Procedure, ProcedureCall, Rows, schema
from pyhudi.options.sync_options import (
    HIVE_METASTORE_URIS,
    HIVE_MODE,
    HIVE_PARTITION_EXTRACTOR_CLASS,
    HIVE_PARTITION_FIELDS,
    HIVE_TABLE_STRATEGY,
    INCREMENTAL,
)

_OPTIONS = {
    "metastore_uri": HIVE_METASTORE_URIS,
    "mode": HIVE_MODE,
    "partition_fields": HIVE_PARTITION_FIELDS,
    "partition_extractor_class": HIVE_PARTITION_EXTRACTOR_CLASS,
    "strategy": HIVE_TABLE_STRATEGY,
    "sync_incremental": INCREMENTAL,
}


def hive_sync(call: ProcedureCall) -> Rows:
    """Sync the table; empty arguments have no effect. Raises Unsupported for arguments of HiveServer2."""
    for name in ("username", "password"):
        if call.text(name):
            raise Unsupported(
                f"{name} of hive_sync is not supported: it applies to HiveServer2, and the metastore is updated directly; omit it"
            )
    if call.text("use_jdbc").strip().lower() not in ("", "false"):
        raise Unsupported(
            "use_jdbc of hive_sync is not supported: the metastore is updated directly, without HiveServer2; omit it"
        )
    options = {option.key: call.text(name) for name, option in _OPTIONS.items() if call.text(name)}
    call.table.sync(options=options)
    yield {"result": "hive sync success."}


PROCEDURES = (
    Procedure(
        "hive_sync",
        tuple(Parameter(name, default="") for name in (*_OPTIONS, "username", "password", "use_jdbc")),
        schema("result string"),
        hive_sync,
        "Register the table in a Hive metastore.",
    ),
)

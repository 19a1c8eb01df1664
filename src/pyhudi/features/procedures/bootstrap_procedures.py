"""Procedures that bootstrap tables from existing files, and show the bootstrap index."""

from __future__ import annotations

from pyhudi import features
from pyhudi.errors import InvalidRequest, TableState
from pyhudi.features.procedures.procedure import ProcedureCall, Rows, procedure
from pyhudi.format.bootstrap_index import BootstrappedGroup
from pyhudi.options import bootstrap_options
from pyhudi.options.table_options import BASE_FORMAT, GENERATOR_CLASS, PAYLOAD, TABLE_TYPE
from pyhudi.table.bootstrap_sources import load_index

_COLUMNS = ("partition", "file_id", "source_base_path", "source_partition", "source_file")
_ONLY = {
    "bootstrap_index_class": "org.apache.hudi.common.bootstrap.index.hfile.HFileBootstrapIndex",
    "full_bootstrap_input_provider": "org.apache.hudi.bootstrap.SparkParquetBootstrapDataProvider",
    "schema_provider_class": "",
    "props_file_path": "",
}
"""Arguments with a single supported value: their default."""

_CLASSES = {
    "selector_class": bootstrap_options.MODE_SELECTOR.key,
    "key_generator_class": GENERATOR_CLASS.key,
    "payload_class": PAYLOAD.key,
    "base_file_format": BASE_FORMAT.key,
}
"""Arguments that name a class or a format, and the corresponding options."""

_DEFAULTS = {
    "selector_class": "org.apache.hudi.client.bootstrap.selector.MetadataOnlyBootstrapModeSelector",
    "key_generator_class": "org.apache.hudi.keygen.SimpleKeyGenerator",
    "payload_class": "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload",
    "base_file_format": "PARQUET",
}


@procedure(
    "table_type string required, bootstrap_path string required, base_path string required, rowKey_field string required, "
    f"base_file_format string = {_DEFAULTS['base_file_format']}, partition_path_field string =, "
    f"bootstrap_index_class string = {_ONLY['bootstrap_index_class']}, selector_class string = {_DEFAULTS['selector_class']}, "
    f"key_generator_class string = {_DEFAULTS['key_generator_class']}, "
    f"full_bootstrap_input_provider string = {_ONLY['full_bootstrap_input_provider']}, schema_provider_class string =, "
    f"payload_class string = {_DEFAULTS['payload_class']}, parallelism int = 1500, enable_hive_sync boolean = false, "
    "props_file_path string =, bootstrap_overwrite boolean = false, options string",
    "status int",
    creates_table=True,
)
def run_bootstrap(call: ProcedureCall) -> Rows:
    """Make a table over existing Parquet or ORC files. `status` is 0; errors are raised."""
    for name, allowed in _ONLY.items():
        if call.text(name) not in (allowed, ""):
            raise InvalidRequest(
                f"{name}={call.text(name)} of run_bootstrap: a bootstrap reads the files by itself and writes an HFile index"
            )
    for name in ("enable_hive_sync", "bootstrap_overwrite"):
        if call.flag(name):
            raise InvalidRequest(f"{name}=true of run_bootstrap is not supported: omit it")
    if call.text("base_path") != call.path:
        raise InvalidRequest(f"base_path={call.text('base_path')} of run_bootstrap differs from path={call.path}")
    # A default does not contradict `options`; the default key generator means the one that the key fields require.
    class_options = {name: option for name, option in _CLASSES.items() if call.text(name) not in (_DEFAULTS[name], "")}
    options = {
        _CLASSES["payload_class"]: _DEFAULTS["payload_class"],
        **(call.session_options or {}),
        **call.options(table_type=TABLE_TYPE.key, **class_options),
    }
    features.load("bootstrap", "procedure run_bootstrap").bootstrap(
        call.text("bootstrap_path"),
        call.path,
        record_key=call.text("rowKey_field"),
        partition_by=call.text("partition_path_field") or None,
        storage_options=call.storage_options,
        options=options,
        spark=call.spark,
    )
    yield (0,)


@procedure(
    "partition_path string =, file_ids string =, limit int = 10, sort_by string = partition, desc boolean = false",
    ", ".join(f"{column} string" for column in _COLUMNS),
)
def show_bootstrap_mapping(call: ProcedureCall) -> Rows:
    """Source files of file groups."""
    partition, file_ids = call.text("partition_path"), call.names("file_ids")
    if file_ids and not partition:
        raise InvalidRequest("file_ids of show_bootstrap_mapping require a partition: pass partition_path")
    base_path = _base_path(call)
    order = call.text("sort_by")
    if order not in _COLUMNS:
        raise InvalidRequest(f"sort_by={order} of show_bootstrap_mapping is unknown: choose from {', '.join(_COLUMNS)}")
    rows = [
        (group.partition, group.file_id, base_path, group.source_partition, group.source.uri)
        for group in _index(call)
        if partition in ("", group.partition) and (not file_ids or group.file_id in file_ids)
    ]
    return sorted(rows, key=lambda row: (row[_COLUMNS.index(order)], row[1]), reverse=call.flag("desc"))


@procedure("", "indexed_partitions string")
def show_bootstrap_partitions(call: ProcedureCall) -> Rows:
    """Partitions with rows in source files, including those rewritten since."""
    return ((partition,) for partition in sorted({group.partition for group in _index(call)}))


def _index(call: ProcedureCall) -> list[BootstrappedGroup]:
    _base_path(call)
    return list(load_index(call.table.context))


def _base_path(call: ProcedureCall) -> str:
    base_path = call.table.config.bootstrap_base_path
    if base_path is None:
        raise TableState(f"the table at {call.table.uri} is not a bootstrapped table")
    return base_path

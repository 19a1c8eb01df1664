"""Dagster IO manager that stores assets as Apache Hudi tables, and an asset check that validates a table.

from dagster import Definitions, asset
from pyhudi_dagster import HudiIOManager

@asset(metadata={"hudi/mode": "upsert", "hudi/record_key": "id"})
def trips() -> pa.Table: ...

defs = Definitions(assets=[trips], resources={"io_manager": HudiIOManager(base="/data/lake")})
"""

from __future__ import annotations

from typing import Any

import dagster as dg

import pyhudi as hp

__all__ = ["HudiIOManager", "validation_check"]

_MODES = ("append", "overwrite", "upsert")


class HudiIOManager(dg.ConfigurableIOManager):
    """Stores each asset as the Hudi table `base/KEY`.

    The metadata of an asset decides how it is written:

        hudi/mode           "overwrite" (default), "append" or "upsert"
        hudi/record_key     record key fields, separated by commas
        hudi/partition_by   partition column; a partitioned asset replaces the rows of its own partition key
        hudi/ordering       ordering field
        hudi/options        further options of Hudi, as a dictionary

    An asset that reads gets what its annotation names: `pa.Table`, `pandas.DataFrame`, `polars.DataFrame`, `hp.Table` or
    `hp.Scan`.

    Attributes:
        base: Folder or URI that holds the tables.
        storage_options: Credentials of the object store.
    """

    base: str
    storage_options: dict[str, str] | None = None

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write the rows of an asset in one commit."""
        metadata, asset = context.definition_metadata or {}, context.asset_key.to_user_string()
        mode = str(metadata.get("hudi/mode", "overwrite"))
        if mode not in _MODES:
            raise hp.InvalidRequest(f"asset {asset}: hudi/mode {mode!r} is none of {', '.join(_MODES)}")
        location, options = self._location(context), metadata.get("hudi/options")
        column = metadata.get("hudi/partition_by")
        result: hp.WriteResult
        if context.has_partition_key and mode == "overwrite" and self._exists(location):
            if column is None:
                raise hp.InvalidRequest(f"asset {asset}: a partitioned asset needs hudi/partition_by")
            where = [(str(column), "=", context.partition_key)]
            result = hp.Table(location, self.storage_options).insert_overwrite(obj, where=where, options=options)
        else:
            result = hp.write(
                location,
                obj,
                mode,
                record_key=_names(metadata.get("hudi/record_key")),
                partition_by=_names(column),
                ordering=_names(metadata.get("hudi/ordering")),
                commit_metadata={"dagster.run_id": context.run_id},
                options=options,
                storage_options=self.storage_options,
            )
        counts = {f"hudi/{name}": getattr(result, name) for name in ("rows_inserted", "rows_updated")}
        context.add_output_metadata({"path": location, "hudi/instant": str(result.instant), **counts})

    def load_input(self, context: dg.InputContext) -> Any:
        """Read an asset; of a partitioned asset, the rows of the partitions that the reader depends on."""
        upstream = context.upstream_output
        column = (upstream.definition_metadata or {}).get("hudi/partition_by") if upstream is not None else None
        where = None
        if context.has_asset_partitions and column is not None:
            where = [(str(column), "in", list(context.asset_partition_keys))]
        table = hp.Table(self._location(context), self.storage_options)
        wanted = context.dagster_type.typing_type
        if wanted is hp.Table:
            return table
        scan = table.scan(filter=where)
        if wanted is hp.Scan:
            return scan
        library = getattr(wanted, "__module__", "").partition(".")[0]
        return {"pandas": scan.to_pandas, "polars": scan.to_polars}.get(library, scan.to_arrow)()

    def _location(self, context: dg.InputContext | dg.OutputContext) -> str:
        return "/".join((self.base.rstrip("/"), *context.asset_key.path))

    def _exists(self, location: str) -> bool:
        try:
            hp.Table(location, self.storage_options)
        except hp.TableNotFound:
            return False
        return True


def validation_check(
    asset: dg.AssetsDefinition, base: str, storage_options: dict[str, str] | None = None
) -> dg.AssetChecksDefinition:
    """An asset check that runs `Table.validate` on the table of an asset.

    Args:
        asset: The asset, stored by `HudiIOManager`.
        base: Folder or URI that holds the tables.
        storage_options: Credentials of the object store.
    """

    @dg.asset_check(asset=asset, name="hudi_table_is_valid")
    def check() -> dg.AssetCheckResult:
        report = hp.Table("/".join((base.rstrip("/"), *asset.key.path)), storage_options).validate()
        return dg.AssetCheckResult(passed=report.ok, metadata={"report": str(report)})

    return check


def _names(value: Any) -> list[str] | None:
    if value is None:
        return None
    return [name.strip() for name in value.split(",")] if isinstance(value, str) else [str(name) for name in value]

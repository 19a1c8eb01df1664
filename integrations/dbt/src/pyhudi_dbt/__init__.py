"""Plugin of dbt-duckdb: Hudi tables as sources, and as targets of models with the materialization `external`.

In profiles.yml:

    plugins:
      - module: pyhudi_dbt
        alias: hudi
        config: {storage_options: {...}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow.parquet as pq
from dbt.adapters.duckdb.plugins import BasePlugin
from dbt.adapters.duckdb.utils import SourceConfig, TargetConfig

import pyhudi as hp

__all__ = ["Plugin"]

_MODES = {"append": "append", "merge": "upsert", "overwrite": "overwrite", "insert_overwrite": "insert_overwrite"}


class Plugin(BasePlugin):
    """Reads and writes Hudi tables for dbt-duckdb."""

    def initialize(self, plugin_config: dict[str, Any]) -> None:
        """Keep the options of the profile: `storage_options`, for all tables."""
        unknown = sorted(set(plugin_config) - {"storage_options"})
        if unknown:
            raise hp.InvalidRequest(f"plugin {self.name}: config has {', '.join(unknown)}; it takes storage_options only")
        self._storage_options: Mapping[str, str] | None = plugin_config.get("storage_options")

    def load(self, source_config: SourceConfig) -> Any:
        """Rows of a source: `hudi_path`, with `as_of`, `columns` and `filter` as in `Table.scan`."""
        if "hudi_path" not in source_config:
            raise hp.InvalidRequest(f"source {source_config.table_name()}: hudi_path is missing in its meta or config")
        table = hp.Table(source_config["hudi_path"], self._storage_options)
        scan = table.scan(source_config.get("columns"), filter=source_config.get("filter"), as_of=source_config.get("as_of"))
        return scan.to_arrow()

    def store(self, target_config: TargetConfig) -> None:
        """Write the rows of a model, which dbt-duckdb stored as a Parquet file, to the Hudi table of its config.

        Config of the model: `hudi_path`, `hudi_strategy` (overwrite by default, append, merge or insert_overwrite), `unique_key`,
        `partition_by`, `ordering`, `hudi_options`.
        """
        config, name = target_config.config, target_config.relation.identifier
        path, strategy = config.get("hudi_path"), config.get("hudi_strategy", "overwrite")
        if not path or target_config.location is None or target_config.location.format != "parquet":
            raise hp.InvalidRequest(f"model {name}: set hudi_path in its config, and no other format than parquet")
        if strategy not in _MODES:
            raise hp.InvalidRequest(f"model {name}: hudi_strategy {strategy!r} is none of {', '.join(_MODES)}")
        keys = _names(config.get("unique_key"))
        if strategy == "merge" and not keys:
            raise hp.InvalidRequest(f"model {name}: hudi_strategy merge needs unique_key")
        rows, options = pq.read_table(target_config.location.path), config.get("hudi_options")
        if strategy == "insert_overwrite" and self._exists(path):
            hp.Table(path, self._storage_options).insert_overwrite(rows, options=options)
            return
        hp.write(
            path,
            rows,
            "append" if strategy == "insert_overwrite" else _MODES[strategy],
            record_key=keys,
            partition_by=_names(config.get("partition_by")),
            ordering=_names(config.get("ordering")),
            schema_mode="evolve",
            options=options,
            storage_options=self._storage_options,
        )

    def default_materialization(self) -> str:
        """Sources become tables of DuckDB for the run: each run reads the newest snapshot."""
        return "table"

    def _exists(self, path: str) -> bool:
        try:
            hp.Table(path, self._storage_options)
        except hp.TableNotFound:
            return False
        return True


def _names(value: Any) -> list[str] | None:
    if not value:
        return None
    return [value] if isinstance(value, str) else [str(name) for name in value]

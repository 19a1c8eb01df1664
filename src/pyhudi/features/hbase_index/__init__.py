"""The HBase index: record locations in a table of HBase."""

from __future__ import annotations

from typing import Any

from pyhudi.features import export

_EXPORTS = {
    "check_hbase": "hbase_commits",
    "find_in_hbase": "hbase_tasks",
    "lookup_hbase_distributed": "spark_lookup",
    "lookup_hbase_on_driver": "spark_lookup",
    "sync_rollback": "hbase_commits",
    "update_hbase_index": "hbase_commits",
}


def __getattr__(name: str) -> Any:
    return export(__name__, _EXPORTS, name)

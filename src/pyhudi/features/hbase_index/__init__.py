"""The HBase index: record locations in a table of HBase."""

from __future__ import annotations

from typing import Any

from pyhudi.features import export

_EXPORTS = {
    "ask_few_of_hbase": "spark_lookup",
    "ask_many_of_hbase": "spark_lookup",
    "check_hbase": "hbase_commits",
    "find_in_hbase": "hbase_tasks",
    "sync_rollback": "hbase_commits",
    "told_to_hbase": "hbase_commits",
}


def __getattr__(name: str) -> Any:
    return export(__name__, _EXPORTS, name)

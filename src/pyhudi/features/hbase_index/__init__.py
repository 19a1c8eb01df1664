"""The HBase index: record locations in a table of HBase."""

from __future__ import annotations

from pyhudi.features import exports

_EXPORTS = {
    "check_hbase": "hbase_commits",
    "find_in_hbase": "hbase_tasks",
    "lookup_hbase_distributed": "spark_lookup",
    "lookup_hbase_on_driver": "spark_lookup",
    "sync_rollback": "hbase_commits",
    "update_hbase_index": "hbase_commits",
}
__getattr__ = exports(__name__, _EXPORTS)

"""Bootstrap: Hudi tables over existing Parquet and ORC files."""

from __future__ import annotations

from pyhudi.features import exports

_EXPORTS = {
    "bootstrap": "bootstrap_table",
    "BootstrapSettings": "bootstrap_operation",
}
__getattr__ = exports(__name__, _EXPORTS)

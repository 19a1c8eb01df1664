"""Bootstrap: Hudi tables over existing Parquet and ORC files."""

from __future__ import annotations

from typing import Any

from pyhudi.features import export

_EXPORTS = {
    "bootstrap": "bootstrap_table",
    "BootstrapSettings": "bootstrap_operation",
}


def __getattr__(name: str) -> Any:
    return export(__name__, _EXPORTS, name)

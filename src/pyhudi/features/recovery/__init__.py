"""Recovery of lost metadata: hoodie.properties and the timeline, inferred from data files."""

from __future__ import annotations

from typing import Any

from pyhudi.features import export

_EXPORTS = {
    "plan_rebuild": "rebuild_timeline",
    "restore_properties": "restore_table_properties",
    "run_rebuild": "rebuild_timeline",
}


def __getattr__(name: str) -> Any:
    return export(__name__, _EXPORTS, name)

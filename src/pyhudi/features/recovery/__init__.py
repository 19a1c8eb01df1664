"""Recovery of lost metadata: hoodie.properties and the timeline, inferred from data files."""

from __future__ import annotations

from pyhudi.features import exports

_EXPORTS = {
    "plan_rebuild": "rebuild_timeline",
    "restore_properties": "restore_table_properties",
    "run_rebuild": "rebuild_timeline",
}
__getattr__ = exports(__name__, _EXPORTS)

"""Options of a lock with a fair queue."""

from __future__ import annotations

OPTIONS: dict[str, object] = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.write.num.retries.on.conflict.failures": 0,
    "pyhudi.threads": 1,
}

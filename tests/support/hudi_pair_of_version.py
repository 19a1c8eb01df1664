"""A pair of writers on a table that keeps its version during writes of Apache Hudi 1.2.0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.interop.pair import Pair

INDEXED: dict[str, Any] = {
    "hoodie.metadata.record.index.enable": True,
    "hoodie.metadata.record.index.min.filegroup.count": 1,
    "hoodie.metadata.record.index.max.filegroup.count": 1,
    "hoodie.metadata.index.column.stats.enable": True,
    "hoodie.metadata.index.column.stats.file.group.count": 1,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.embed.timeline.server": False,
}
KINDS_AND_VERSIONS = [
    ("cow", 8),
    ("mor", 9),
    pytest.param("cow", 9, marks=pytest.mark.wide),
    pytest.param("mor", 8, marks=pytest.mark.wide),
]
"""Table types and versions; the full tier has each of them once."""


@dataclass
class PairOfVersion(Pair):
    """A pair whose table stays at its version."""

    version: int = 9

    @property
    def options(self) -> dict[str, Any]:
        return {**super().options, **INDEXED, **self.more, "hoodie.write.table.version": self.version}

    def theirs(self, operation: str, data: Any, *, filters: int = 0, check: bool = True, **options: Any) -> None:
        # Release 1.2.0 upgrades a table of version 8 to version 9 unless an option prevents it.
        super().theirs(operation, data, filters=filters, check=check, **{"hoodie.write.auto.upgrade": False, **options})

    def checked(self) -> None:
        report = self.table.validate()
        assert report.ok, str(report)
        assert int(self.table.config.version) == self.version

"""Hudi keeps the constraints of a table, which it does not enforce."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyhudi.errors import InvalidRequest
from tests.interop.oracle import ApacheHudi
from tests.interop.pair import Pair, make


@pytest.mark.parametrize("release", ["hudi", "newer_hudi"])
def test_constraints_survive_writes_of_hudi(release: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    hudi: ApacheHudi = request.getfixturevalue(release)
    pair = Pair(hudi, tmp_path / "t", "mor")
    pair.create()
    pair.ours("insert", make(range(6), 1), check=False)
    pair.table.alter.add_constraint("later", "ts > 0")
    pair.theirs("upsert", make(range(3), 2), check=False)
    assert hudi.properties(pair.path)["pyhudi.table.constraints.later"] == "ts > 0"
    assert pair.table.alter.constraints() == {"later": "ts > 0"}
    with pytest.raises(InvalidRequest, match="constraint 'later'"):
        pair.table.upsert(make(range(3), -1))
    pair.check(0)

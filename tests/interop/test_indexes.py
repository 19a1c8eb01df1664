"""Secondary and expression indexes: created by PyHudi or Apache Hudi, written and read by both, in tables of versions 8 and 9."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pyhudi import Table
from tests.interop.oracle import ApacheHudi
from tests.interop.pair import Pair, make
from tests.support.hudi_indexes import VERSION_8, VERSION_9, Indexes, index_definitions
from tests.support.needs import WIDE


@pytest.fixture
def session(request: pytest.FixtureRequest, indexes: Indexes) -> Iterator[ApacheHudi]:
    """The release of Hudi whose own version the indexes are of, with a session that may create them."""
    hudi: ApacheHudi = request.getfixturevalue(indexes.fixture)
    with indexes.session_of(hudi):
        yield hudi


@pytest.mark.parametrize(
    ("indexes", "creator"),
    [
        pytest.param(VERSION_8, "ours", id="8-ours"),
        pytest.param(VERSION_9, "theirs", id="9-theirs"),
        pytest.param(VERSION_8, "theirs", id="8-theirs", marks=pytest.mark.wide),
        pytest.param(VERSION_9, "ours", id="9-ours", marks=pytest.mark.wide),
    ],
)
def test_indexes_built_by_either_library_are_maintained_by_both(
    session: ApacheHudi, tmp_path: Path, indexes: Indexes, creator: str
) -> None:
    queries = len(indexes.queries)
    pair = Pair(session, tmp_path / "t", "cow", dict(indexes.options))
    pair.create()
    pair.ours("upsert", make(range(24), 1))
    if creator == "ours":
        indexes.create_by_pyhudi(pair.table)
    else:
        indexes.create_by_hudi(session, pair.path, f"indexes_{indexes.version}")
        other = Table.create(tmp_path / "other", options=pair.options)
        other.upsert(make(range(3), 1))
        indexes.create_by_pyhudi(other)
        assert index_definitions(tmp_path / "other") == index_definitions(pair.path)
    names = set(pair.metadata.partitions)
    if indexes.version == 9:
        versions = {name: definition["version"] for name, definition in index_definitions(pair.path).items()}
        assert versions.pop("record_index") == "V1" and set(versions.values()) == {"V2"}
    # A write of Hudi to all indexes takes 10 s.  In an ordinary run it writes to indexes that PyHudi has created, and to its own
    # after PyHudi has written to them and clustered; it reads by new indexes of PyHudi, and by all indexes at the end.
    indexes.check(pair, queries if WIDE or creator == "ours" else 0)
    pair.ours("upsert", make(range(18, 30), 2, note=indexes.note))
    if WIDE or creator == "ours":
        pair.theirs("upsert", make(range(26, 34), 3), **indexes.writes)
        pair.theirs("delete", make(range(18, 20), 4), **indexes.writes)
        indexes.check(pair, queries if WIDE else 0)
    pair.ours("upsert", make(range(22, 26), 5, note=None))
    pair.ours("delete", make(range(20, 22), 6))
    pair.table.cluster()
    if WIDE or creator == "theirs":
        pair.theirs("upsert", make([0, 1, 2, 20, 23, 35], 7, note=indexes.note), **indexes.writes)
    assert pair.metadata_compactions(), "the metadata table was never compacted"
    indexes.check(pair, queries)
    assert names == set(pair.metadata.partitions)

"""User-defined mergers and payload classes: Apache Hudi runs one in Java (tests/interop/java), PyHudi its twin in
Python; both write, delete and compact one table. The merger keeps the newer row with the highest score of its key,
so it shows whether both sides were passed in the right order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import pyhudi as hp
from pyhudi import Table, testing
from pyhudi.options import plugins
from pyhudi.records import mergers
from pyhudi.records.record_merge import choose_rows
from tests.interop.alternation import OPERATION
from tests.interop.oracle import ApacheHudi
from tests.support.rows import assert_same_rows

JAVA = Path(__file__).with_name("java")
MERGER, PAYLOAD = "interop.HighestScore", "interop.HighestScorePayload"
CLASSES = "hoodie.write.record.merge.custom.implementation.classes"
READ: dict[str, Any] = {"hoodie.metadata.enable": False, CLASSES: MERGER}
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("score", pa.int64()),
        ("note", pa.string()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)


class HighestScore:
    """The twin of tests/interop/java/HighestScore.java, which accepts every delete that it is called for."""

    strategy_id = "3f0a1d52-7f6e-4a53-9a52-5d1b7c0e9a10"

    def merge(self, older: pa.Table, newer: pa.Table) -> tuple[pa.Table, None]:
        place = newer.schema.get_field_index("score")
        highest = pc.max_element_wise(older["score"], newer["score"])
        return newer.set_column(place, newer.schema.field(place), highest), None

    def deletes(self, older: pa.Table, newer: pa.Table) -> pa.Array:
        return pa.repeat(True, newer.num_rows)


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in ("_registered", "_classes", "_payloads"):
        monkeypatch.setattr(mergers, registry, plugins.Registry("merger"))
    hp.register_merger(HighestScore(), MERGER)
    hp.register_payload(PAYLOAD, HighestScore())


@pytest.fixture
def with_classes(hudi: ApacheHudi) -> Iterator[ApacheHudi]:
    for name in ("HighestScore", "HighestScorePayload"):
        hudi.add_class(JAVA / f"{name}.java")
    hudi.run("c = jvm.interop.HighestScore; c.merged = 0; c.deletes = 0")
    yield hudi


def rows(ts: int, note: str, gone: tuple[str, ...] = (), **scores: int) -> pa.Table:
    made = [
        {"id": key, "ts": ts, "score": score, "note": note, "_hoodie_is_deleted": key in gone} for key, score in scores.items()
    ]
    return pa.Table.from_pylist(made, SCHEMA)


class Pair:
    def __init__(self, hudi: ApacheHudi, path: Path, kind: str, rule: Mapping[str, Any]) -> None:
        self.hudi, self.path = hudi, path
        self.options: dict[str, Any] = {
            "hoodie.table.name": "highest",
            "hoodie.datasource.write.table.type": kind,
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.compact.inline": False,
            **READ,
            **rule,
        }

    @property
    def table(self) -> Table:
        # One mapping for both.
        return Table(self.path, options=self.options)

    def theirs(self, operation: str, data: pa.Table) -> None:
        self.hudi.write(data, self.path, **(self.options | {OPERATION: operation}))

    def read(self) -> dict[str, tuple[int, int, str]]:
        """What both read: ordering value, score and note of each key."""
        found = self.table.scan(["*"]).to_arrow()
        assert_same_rows(self.hudi.read(self.path, **READ), found)
        return {row["id"]: (row["ts"], row["score"], row["note"]) for row in found.to_pylist()}


RULES: dict[str, dict[str, Any]] = {
    # Its mergers that Spark's readers can run are of Spark's rows, and writers that have those write Parquet blocks alone.
    "merger": {
        "hoodie.write.record.merge.mode": "CUSTOM",
        "hoodie.write.record.merge.strategy.id": HighestScore.strategy_id,
        "hoodie.logfile.data.block.format": "parquet",
    },
    "payload": {"hoodie.datasource.write.payload.class": PAYLOAD},
}


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        ("merger", "MERGE_ON_READ"),
        pytest.param("merger", "COPY_ON_WRITE", marks=pytest.mark.wide),
        pytest.param("payload", "MERGE_ON_READ", marks=pytest.mark.wide),
        pytest.param("payload", "COPY_ON_WRITE", marks=pytest.mark.wide),
    ],
)
def test_custom_merger_with_alternating_writers(with_classes: ApacheHudi, tmp_path: Path, rule: str, kind: str) -> None:
    pair = Pair(with_classes, tmp_path / f"{rule}_{kind.lower()}", kind, RULES[rule])
    pair.theirs("insert", rows(1, "a", k1=5, k2=5, k3=5, k4=5, k5=5, k6=5))
    pair.theirs("upsert", rows(2, "b", k1=3, k2=8))
    pair.table.upsert(rows(3, "c", k1=4, k2=2, k3=1, k7=3))
    # A late row is merged in its place, as the rule uses no ordering value.
    pair.theirs("upsert", rows(2, "late", k3=9, k1=7))
    expected = {"k1": (2, 7, "late"), "k2": (3, 8, "c"), "k3": (2, 9, "late"), "k7": (3, 3, "c")}
    assert pair.read() == expected | dict.fromkeys(("k4", "k5", "k6"), (1, 5, "a"))
    pair.table.delete(pa.table({"id": ["k4"]}))
    pair.theirs("delete", rows(4, "gone", k5=0))
    pair.theirs("upsert", rows(5, "gone", ("k6",), k6=0, k1=1))
    expected["k1"] = (5, 7, "gone")
    assert pair.read() == expected
    # A late delete is the merger's where base files are written, and one that loses by ordering value where logs are read.
    pair.theirs("upsert", rows(0, "late", ("k2",), k2=0))
    pair.table.upsert(rows(0, "late", ("k3",), k3=0))
    if kind == "COPY_ON_WRITE":
        del expected["k2"], expected["k3"]
    assert pair.read() == expected
    if kind == "MERGE_ON_READ":
        planned = pair.table.schedule_compaction().planned
        assert planned is not None
        pair.hudi.register(pair.path, pair.path.name)
        options = f"hoodie.metadata.enable=false,{CLASSES}={MERGER}"
        if rule == "merger":
            options += ",hoodie.logfile.data.block.format=parquet"
        pair.hudi.call("run_compaction", op="run", table=pair.path.name, options=options, timestamp=int(planned))
        assert pair.read() == expected
        pair.theirs("upsert", rows(7, "e", k1=3, k7=8))
        assert pair.table.compact().runs
        expected |= {"k1": (7, 7, "e"), "k7": (7, 8, "e")}
        assert pair.read() == expected
    pair.theirs("upsert", rows(8, "f", k1=9, k7=1))
    pair.table.upsert(rows(9, "g", k1=1, k7=9))
    assert pair.read() == expected | {"k1": (9, 9, "g"), "k7": (9, 9, "g")}
    if rule == "merger":
        asked = with_classes.run("c = jvm.interop.HighestScore; result = [c.merged, c.deletes]")
        assert asked[0] > 0
        # Hudi calls its merger for no delete in logs, and for each one that is merged with a base file.
        assert (asked[1] > 0) is (kind == "COPY_ON_WRITE")


class KeepHigher:
    """The twin of tests/interop/java/KeepHigher.java."""

    strategy_id = "3f0a1d52-7f6e-4a53-9a52-5d1b7c0e9a11"

    def merge(self, older: pa.Table, newer: pa.Table) -> tuple[pa.Table, None]:
        return choose_rows(older, newer, pc.less_equal(older["score"], newer["score"]).to_numpy()), None


@pytest.mark.wide
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_row_that_is_kept_keeps_its_commit_time(hudi: ApacheHudi, tmp_path: Path, kind: str) -> None:
    hudi.add_class(JAVA / "KeepHigher.java")
    hp.register_merger(KeepHigher(), "interop.KeepHigher")
    rule = {**RULES["merger"], "hoodie.write.record.merge.strategy.id": KeepHigher.strategy_id, CLASSES: "interop.KeepHigher"}
    pair = Pair(hudi, tmp_path / f"kept_{kind.lower()}", kind, rule)
    pair.theirs("insert", rows(1, "a", k1=5, k2=5, k3=5, k4=5))
    pair.theirs("upsert", rows(2, "b", k1=3, k2=8))
    pair.table.upsert(rows(3, "c", k3=3, k4=8))
    found = pair.table.scan(["*"]).to_arrow()
    assert_same_rows(hudi.read(pair.path, **(READ | {CLASSES: "interop.KeepHigher"})), found)
    first, theirs, ours = (instant.request_time for instant in pair.table.timeline().completed_writes())
    assert {row["id"]: row["_hoodie_commit_time"] for row in found.to_pylist()} == {
        "k1": first,
        "k2": theirs,
        "k3": first,
        "k4": ours,
    }


def test_python_merger_passes_the_merger_checks() -> None:
    states = [rows(1, "a", k1=5, k2=5), rows(2, "b", k1=3, k2=8), rows(3, "c", k1=9, k2=1)]
    testing.check_merger(HighestScore(), *states)

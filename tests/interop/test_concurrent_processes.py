"""Apache Hudi and processes of PyHudi write and service one table at the same time; `concurrent/explore.py` takes other seeds."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.interop.concurrent.cases import Case
from tests.interop.concurrent.explore import Run, figures
from tests.interop.concurrent.history import Outcome

SPARK = ("embedded", "spark")
FIXTURES = {"1.0.2": "hudi", "1.1.1": "newer_hudi", "1.2.0": "newest_hudi"}
CASES = (
    Case("1.0.2", "mor", "file", "record", seed=1, steps=6),
    Case("1.0.2", "cow", "zookeeper", "bloom", writers=SPARK, seed=2, steps=6),
    Case("1.1.1", "mor", "zookeeper", "bloom", seed=3, steps=6),
    Case("1.1.1", "cow", "file", "record", seed=4, steps=5, kills_hudi=True),
)
WIDE = (
    *(
        Case(release, kind, lock, ("bloom", "record")[number % 2], seed=100 + number, steps=12, kills_hudi=number % 3 == 0)
        for number, (release, kind, lock) in enumerate(itertools.product(FIXTURES, ("cow", "mor"), ("file", "zookeeper")))
    ),
    *(Case("1.0.2", "mor", "zookeeper", index, seed=300, steps=12) for index in ("builds", "secondary", "hashing")),
    *(Case("1.1.1", "mor", "zookeeper", index, seed=310, steps=12) for index in ("builds", "secondary", "hashing")),
    Case("1.0.2", "mor", "file", "bloom", writers=SPARK, seed=200, steps=10),
    Case("1.1.1", "mor", "zookeeper", "record", writers=SPARK, seed=201, steps=10),
    Case("1.2.0", "cow", "zookeeper", "record", writers=SPARK, seed=202, steps=10),
)


def name_of(case: Case) -> str:
    return f"{case.release}-{case.kind}-{case.lock}-{case.index}-{case.seed}"


@pytest.mark.parametrize(
    "case", [*(pytest.param(case, id=name_of(case)) for case in CASES),
             *(pytest.param(case, id=name_of(case), marks=pytest.mark.wide) for case in WIDE)]
)  # fmt: skip
def test_concurrent_processes_lose_no_acknowledged_write(case: Case, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    hudi = request.getfixturevalue(FIXTURES[case.release])
    address = request.getfixturevalue("zookeeper").address if case.lock == "zookeeper" else None
    run = Run(case, tmp_path / "t", hudi, address)
    wrong = run.run()
    print(case, figures(run.history))
    if run.overtaken:
        pytest.skip(f"Hudi planned {run.overtaken} on a commit with a later instant: see docs/limitations.md")
    assert wrong == []
    assert run.history.count(Outcome.ACKNOWLEDGED) > 1

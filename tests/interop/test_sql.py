"""Statements of the SQL suite give the same rows and table properties in Apache Hudi and embedded."""

from __future__ import annotations

from pathlib import Path

import pytest

import pyhudi as hp
from tests.conformance.sql_suite import CASES, COMPARED, Case, check
from tests.interop.oracle import ApacheHudi, HudiFailure

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("case", [case for case in CASES if not case.differs], ids=lambda case: case.name)
def test_statements_have_the_results_of_hudi(hudi: ApacheHudi, case: Case, tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    catalog = hp.Catalog()
    check(case, lambda text: hp.sql(text, catalog=catalog), str(ours), hp.InvalidRequest)
    try:
        check(case, hudi.sql, str(theirs), HudiFailure)
        for path in ours.iterdir():
            made, wanted = dict(hp.Table(path).config.properties), hudi.properties(theirs / path.name)
            assert [made.get(key) or None for key in COMPARED] == [wanted.get(key) for key in COMPARED]
    finally:
        for name in catalog:
            hudi.sql(f"DROP TABLE IF EXISTS {name}")

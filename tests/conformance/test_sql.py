"""The embedded engine passes the SQL suite."""

from __future__ import annotations

from pathlib import Path

import pytest

import pyhudi as hp
from tests.conformance.sql_suite import CASES, Case, check, check_metadata_rows, check_steps, check_stored_defaults


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_embedded(case: Case, tmp_path: Path) -> None:
    catalog = hp.Catalog()
    check(case, lambda text: hp.sql(text, catalog=catalog), str(tmp_path), hp.InvalidRequest)


def test_statements_of_a_session(tmp_path: Path) -> None:
    catalog = hp.Catalog()
    check_steps(lambda text: hp.sql(text, catalog=catalog), str(tmp_path))


def test_metadata_rows(tmp_path: Path) -> None:
    catalog = hp.Catalog()
    check_metadata_rows(lambda text: hp.sql(text, catalog=catalog), str(tmp_path))


def test_stored_defaults(tmp_path: Path) -> None:
    catalog = hp.Catalog()
    check_stored_defaults(lambda text: hp.sql(text, catalog=catalog), str(tmp_path))

"""`PageChecks`: which column chunks are still to be verified."""

from __future__ import annotations

from pyhudi.format.parquet.page_checks import ChecksumMode, PageChecks


def test_once_verifies_each_column_of_each_row_group_once() -> None:
    checks = PageChecks(ChecksumMode.ONCE)
    assert checks.is_due(0, 0b011)
    checks.passed(0, 0b011)
    assert not checks.is_due(0, 0b001) and not checks.is_due(0, 0b011)
    assert checks.is_due(0, 0b110) and checks.is_due(1, 0b001)
    checks.passed(0, 0b100)
    assert not checks.is_due(0, 0b111)


def test_always_and_never_record_nothing() -> None:
    for mode, is_due in ((ChecksumMode.ALWAYS, True), (ChecksumMode.NEVER, False)):
        checks = PageChecks(mode)
        checks.passed(0, 0b1)
        assert checks.is_due(0, 0b1) is is_due

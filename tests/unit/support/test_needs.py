from __future__ import annotations

import pytest

from tests.support.needs import is_unavailable, unavailable


def test_missing_requirement_skips_or_fails_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYHUDI_REQUIRE", raising=False)
    with pytest.raises(pytest.skip.Exception, match="interop: no Java"):
        unavailable("interop", "no Java")
    monkeypatch.setenv("PYHUDI_REQUIRE", "spark,interop")
    with pytest.raises(pytest.fail.Exception, match="interop: no Java"):
        unavailable("interop", "no Java")


def test_the_reason_is_recognized() -> None:
    assert is_unavailable("spark: no Java >= 17")
    assert not is_unavailable("could not import 'boto3': no such module")

from __future__ import annotations

import pytest

from tests.support.tiers import Tier, beyond_sample, is_selected, markers_of_path, may_hold_selected, tier_of


@pytest.mark.parametrize(
    ("path", "markers"),
    [
        ("unit/format/test_names.py", ("unit",)),
        ("test_layers.py", ("unit",)),
        ("test_docs.py", ()),
        ("component/operations/test_index_lifecycle.py", ("component",)),
        ("golden/test_golden_reads.py", ("component",)),
        ("simulation/checker/test_regressions.py", ("simulation",)),
        ("spark/test_read.py", ("spark", "full")),
        ("spark/smoke/test_read.py", ("spark",)),
        ("interop/smoke/deep/test_read.py", ("interop",)),
        ("interop/test_smoke.py", ("interop", "full")),
        ("servers/test_catalogs.py", ("servers", "full")),
    ],
)
def test_markers_come_from_the_path(path: str, markers: tuple[str, ...]) -> None:
    assert markers_of_path(path) == markers


@pytest.mark.parametrize(
    ("markers", "tiers"),
    [
        ((), {Tier.SMOKE, Tier.FULL, Tier.WIDE}),
        (("spark", "full"), {Tier.REST, Tier.FULL, Tier.WIDE}),
        (("spark", "wide"), {Tier.WIDE}),
        (("full", "wide"), {Tier.WIDE}),
    ],
)
def test_smoke_and_rest_add_up_to_full(markers: tuple[str, ...], tiers: set[Tier]) -> None:
    assert {tier for tier in Tier if is_selected(markers, tier)} == tiers


def test_only_the_smoke_tier_has_no_test_in_a_module_of_the_full_one() -> None:
    modules = ("unit/test_names.py", "test_docs.py", "spark/smoke/test_read.py", "spark/test_read.py", "interop/test_read.py")
    assert [path for path in modules if not may_hold_selected(path, Tier.SMOKE)] == ["spark/test_read.py", "interop/test_read.py"]
    assert all(may_hold_selected(path, tier) for path in modules for tier in Tier if tier is not Tier.SMOKE)


def test_an_unknown_tier_is_an_error() -> None:
    assert tier_of("") is Tier.FULL
    with pytest.raises(ValueError, match=r"'quick': unknown tier. Use one of smoke, rest, full, wide"):
        tier_of("quick")


def test_a_sample_is_evenly_spaced() -> None:
    assert beyond_sample("test", 7, 3) == {1, 2, 4, 5}
    assert beyond_sample("test", 2, 3) == set()
    assert beyond_sample("test", 0, 1) == set()
    single = [beyond_sample(f"test_{number}", 2, 1) for number in range(20)]
    assert single.count({0}) > 4 and single.count({1}) > 4

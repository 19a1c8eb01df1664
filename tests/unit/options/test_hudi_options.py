"""Every option of Apache Hudi is supported, has no effect, or is refused.

`hudi_options.txt` holds the names by release; `tests/interop/test_option_names.py` compares it with the bundles.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.options.no_effect_options import NO_OP, REASONS
from pyhudi.options.refused_options import REFUSALS, REFUSED
from pyhudi.options.supported import SUPPORTED, check_known, no_effect_reason, parse_options

LINES = Path(__file__).with_name("hudi_options.txt").read_text(encoding="utf-8").splitlines()[1:]
RELEASES = {name: releases.split(",") for name, releases in (line.split(" ") for line in LINES)}


@pytest.mark.parametrize(("release", "least"), [("1.0.2", 639), ("1.1.1", 652), ("1.2.0", 705)])
def test_every_option_of_hudi_is_classified(release: str, least: int) -> None:
    names = [name for name, releases in RELEASES.items() if release in releases]
    assert len(names) >= least
    for name in names:
        check_known(name)


def test_no_name_is_in_two_classes() -> None:
    spelled = {name for option in SUPPORTED.values() for name in option.all_names}
    assert not spelled & NO_OP.keys() and not spelled & REFUSED.keys() and not NO_OP.keys() & REFUSED.keys()
    names = [name for group in (*REASONS.values(), *(refusal.names for refusal in REFUSALS)) for name in group]
    assert len(names) == len(set(names))


def test_families_of_names_share_a_class() -> None:
    assert no_effect_reason("hoodie.metrics.graphite.port") == no_effect_reason("hoodie.metrics.jmx.host")
    parse_options({"hoodie.metrics.m3.host": "x", "hoodie.streamer.source.kafka.topic": "t", "hoodie.memory.merge.fraction": 0.1})
    with pytest.raises(Unsupported, match="AWS credentials"):
        parse_options({"hoodie.aws.role.arn": "arn:aws:iam::1:role/writer"})
    # A member of a family that is refused, and one that key generators read.
    with pytest.raises(Unsupported, match="services run in the writer"):
        parse_options({"hoodie.table.service.manager.enabled": "true"})
    time_type = {"hoodie.deltastreamer.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS"}
    assert parse_options(time_type).extra == tuple(time_type.items())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hoodie.datasource.merge.type", "skip_merge"),
        ("hoodie.write.complex.keygen.new.encoding", "true"),
        ("hoodie.archive.block.on.latest.clean.ectr", "true"),
        ("hoodie.auto.commit", "false"),
        ("hoodie.timeline.manifest.retained.versions", "1048576000"),
    ],
)
def test_options_that_change_results_or_safety_are_refused(key: str, value: str) -> None:
    with pytest.raises(Unsupported, match=key.replace(".", r"\.")):
        parse_options({key: value})


def test_a_neutral_value_is_accepted_in_any_case() -> None:
    parse_options({"hoodie.auto.commit": "TRUE", "hoodie.write.auto.upgrade": "False"})


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("hoodie.index.typ", r"did you mean hoodie\.index\.type"),
        ("hoodie.cleaner.commit.retained", r"hoodie\.cleaner\.commits\.retained"),
        ("pyhudi.thread", r"did you mean pyhudi\.threads"),
        ("hoodie.zzzzz.qqqqq.xxxxxxxx", "neither Hudi nor PyHudi has it. See"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_names(key: str, nearest: str) -> None:
    with pytest.raises(InvalidRequest, match=nearest):
        parse_options({key: "1"})

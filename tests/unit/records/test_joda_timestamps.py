from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.records.joda_timestamps import MAX_INSTANT_MS, MIN_INSTANT_MS, local_ms, parse_pattern, time_zone

INSTANT = 1714979289123  # 2024-05-06T07:08:09.123Z, a Monday, day 127 of the year


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy/MM/dd", "2024/05/06"),
        ("yyyy-MM-dd'T'HH:mm:ss.SSSZ", "2024-05-06T07:08:09.123+0000"),
        ("yy", "24"),
        ("y M d", "2024 5 6"),
        ("YYYY", "2024"),
        ("MMM MMMM", "May May"),
        ("D DDD", "127 127"),
        ("E EEEE", "Mon Monday"),
        ("hh a", "07 AM"),
        ("k K", "7 7"),
        ("S SS SSSS", "1 12 1230"),
        ("ZZ", "+00:00"),
        ("'year' yyyy ''", "year 2024 '"),
        ("'it''s' yyyy", "it's 2024"),
    ],
)
def test_patterns_print(pattern: str, text: str) -> None:
    assert parse_pattern(pattern).format(INSTANT, UTC) == text


def test_printing_uses_the_zone() -> None:
    assert parse_pattern("yyyyMMddHH ZZ").format(INSTANT, time_zone("Asia/Tokyo")) == "2024050616 +09:00"
    assert parse_pattern("HH Z").format(INSTANT, time_zone("-03:30")) == "03 -0330"


@pytest.mark.parametrize(
    ("pattern", "text", "moment"),
    [
        ("yyyy-MM-dd HH:mm:ss", "2024-05-06 07:08:09", datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)),
        ("yyyyMMdd", "20240506", datetime(2024, 5, 6, tzinfo=UTC)),
        ("yyyy-MM-dd", "2024-5-6", datetime(2024, 5, 6, tzinfo=UTC)),
        ("yyyy-MM-dd'T'HH:mm:ss.SSSZ", "2024-05-06T07:08:09.123+0900", datetime(2024, 5, 5, 22, 8, 9, 123000, tzinfo=UTC)),
        ("yyyy-MM-dd'T'HH:mm:ssZ", "2024-05-06T07:08:09Z", datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)),
        ("dd MMM yyyy hh:mm a", "06 may 2024 12:30 am", datetime(2024, 5, 6, 0, 30, tzinfo=UTC)),
        ("yyyy D", "2024 127", datetime(2024, 5, 6, tzinfo=UTC)),
        ("EEE yyyy", "Mon 2024", datetime(2024, 1, 1, tzinfo=UTC)),
        # The named day wins over the day of the month.
        ("EEE dd MMM yyyy", "Tue 06 May 2024", datetime(2024, 5, 7, tzinfo=UTC)),
        ("MM-dd", "02-29", datetime(2000, 2, 29, tzinfo=UTC)),
        ("HH:mm", "10:30", datetime(1970, 1, 1, 10, 30, tzinfo=UTC)),
        ("kk", "24", datetime(1970, 1, 1, tzinfo=UTC)),
    ],
)
def test_patterns_parse(pattern: str, text: str, moment: datetime) -> None:
    assert parse_pattern(pattern).parse(text, UTC) == int(moment.timestamp() * 1000)


def test_parsing_uses_the_zone_unless_the_text_has_one() -> None:
    pattern = parse_pattern("yyyy-MM-dd HH")
    assert pattern.parse("2024-05-06 00", time_zone("Asia/Tokyo")) == pattern.parse("2024-05-05 15", UTC)
    # The clock goes back at 03:00 on this day: 02 is there twice, and the earlier one counts.
    berlin = time_zone("Europe/Berlin")
    assert pattern.parse("2024-10-27 02", berlin) == pattern.parse("2024-10-27 00", UTC)
    with pytest.raises(InvalidRequest, match="skipped"):
        pattern.parse("2024-03-31 02", berlin)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd", "2024-13-01"),
        ("yyyy-MM-dd", "2024/01/01"),
        ("yyyy-MM-dd", "2024-01-01 "),
        ("yyyy-MM-dd", ""),
        ("hh", "13"),
        ("yyyy D", "2023 366"),
        ("yyyy", "0"),
        ("MMM", "Foo"),
    ],
)
def test_texts_that_do_not_match_are_refused(pattern: str, text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_pattern(pattern).parse(text, UTC)


@pytest.mark.parametrize("pattern", ["yyyy-ww", "GGG", "ZZZ", "xxxx", "yyyy z", "e", "CC"])
def test_letters_that_are_not_built_are_refused(pattern: str) -> None:
    with pytest.raises(Unsupported):
        parse_pattern(pattern)


def test_a_year_of_two_digits_cannot_be_parsed() -> None:
    with pytest.raises(Unsupported, match="two digits"):
        parse_pattern("yy").parse("24", UTC)


@pytest.mark.parametrize("name", ["Mars/Base", "+25:00", "", "../etc"])
def test_unknown_zones_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequest):
        time_zone(name)


def test_granularity_and_levels() -> None:
    pattern = parse_pattern("yyyy/MM/dd/HH")
    assert (pattern.granularity_ms, pattern.level_count, pattern.has_offset) == (3_600_000, 4, False)
    assert parse_pattern("yyyy").granularity_ms == 86_400_000
    assert parse_pattern("SSS").granularity_ms == 1


@given(
    st.lists(st.integers(MIN_INSTANT_MS, MAX_INSTANT_MS)), st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "+05:45"])
)
def test_local_times_are_those_of_the_zone(instants: list[int], name: str) -> None:
    zone = time_zone(name)
    pattern = parse_pattern("yyyy-MM-dd HH:mm:ss.SSS")
    local = local_ms(np.array(instants, dtype=np.int64), zone)
    assert [pattern.format(int(value), UTC) for value in local] == [pattern.format(value, zone) for value in instants]


def test_local_times_around_a_change_of_the_clock() -> None:
    berlin = time_zone("Europe/Berlin")
    change = parse_pattern("yyyy-MM-dd HH").parse("2024-10-27 01", UTC)
    instants = np.arange(change - 3_600_000, change + 3_600_000, 60_000)
    offsets = (local_ms(instants, berlin) - instants) // 3_600_000
    assert offsets.tolist() == [2] * 60 + [1] * 60


@given(st.integers(MIN_INSTANT_MS, MAX_INSTANT_MS))
def test_formatted_timestamp_is_parsed(instant: int) -> None:
    pattern = parse_pattern("yyyy-MM-dd'T'HH:mm:ss.SSSZ")
    assert pattern.parse(pattern.format(instant, time_zone("+09:30")), UTC) == instant

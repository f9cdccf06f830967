"""Durations and selectors: what people may write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli import durations
from penstock.cli.selectors import Indexes, parse_array, parse_tasks, show_ranges


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("45s", 45), ("5m", 300), ("1h30m", 5400), ("250ms", 0.25), ("2d", 172_800), ("90", 90)],
)
def test_a_duration_is_read_as_seconds(text: str, seconds: float) -> None:
    assert durations.parse(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "m5", "1h30", "-5s", "5 weeks"])
def test_what_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        durations.parse(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.25, "250ms"),
        (3.21, "3.2s"),
        (125, "2m5s"),
        (5400, "1h30m"),
        (90_000, "1d1h"),
    ],
)
def test_a_duration_is_shown_with_its_largest_units(seconds: float | None, text: str) -> None:
    assert durations.show(seconds) == text


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("1-5", [1, 2, 3, 4, 5]), ("1-6:2", [1, 3, 5]), ("3", [0, 1, 2]), ("-2-1", [-2, -1, 0, 1])],
)
def test_an_array_is_a_range_or_a_count(text: str, numbers: list[int]) -> None:
    assert list(parse_array(text).numbers) == numbers


@pytest.mark.parametrize("text", ["", "0", "5-1", "1-5:0", "a-b", "last", "1,2"])
def test_what_is_not_an_array_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"array|empty"):
        parse_array(text)


@pytest.mark.parametrize("text", ["0", "-1", "0-5", "first", "1.5", ""])
def test_what_names_no_task_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="names no task"):
        parse_tasks(text)


@given(st.integers(1, 10**9), st.integers(1, 10**6))
def test_what_is_shown_as_a_range_is_read_as_the_same_tasks(first: int, count: int) -> None:
    (text,) = show_ranges([(first, count)])
    assert parse_tasks(text) == Indexes(first, count)

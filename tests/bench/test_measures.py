"""What the benchmarks measure with."""

import asyncio

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bench import raw
from penstock.bench.result import Result, percentile, write


@given(st.lists(st.floats(0, 1000), min_size=1), st.integers(1, 100))
def test_a_percentile_is_the_least_value_that_so_many_do_not_exceed(
    values: list[float], percent: int
) -> None:
    values.sort()
    found = percentile(values, percent)
    assert sum(value <= found for value in values) >= len(values) * percent / 100
    assert sum(value < found for value in values) < len(values) * percent / 100


def test_the_bare_loop_spawns_in_all_processes() -> None:
    assert asyncio.run(raw.spawns_per_second(40, 2)) > 10


def test_a_result_is_one_line_without_what_was_not_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(Result(workload="noop", n=2, workers=1, seconds=0.123456, per_second=16.2))
    written = capsys.readouterr().out
    assert written.endswith("\n")
    assert msgspec.json.decode(written) == {
        "workload": "noop",
        "n": 2,
        "workers": 1,
        "seconds": 0.1235,
        "per_second": 16.2,
    }

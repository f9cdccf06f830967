"""How long to wait between tries."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.retries import LONGEST_WAIT_SECONDS, retry_after, wait_seconds

attempts = st.integers(1, 10_000)
chances = st.floats(0, 1)


@given(attempts, chances, st.floats(0, 100), st.floats(0, 100))
def test_no_wait_goes_beyond_the_time_limit(
    attempt: int, chance: float, elapsed: float, limit: float
) -> None:
    wait = wait_seconds(attempt, elapsed, limit, chance)
    assert wait is None or (0 < wait <= LONGEST_WAIT_SECONDS and elapsed + wait <= limit)


@given(attempts, chances)
def test_waits_grow_from_try_to_try_up_to_the_longest(attempt: int, chance: float) -> None:
    this = wait_seconds(attempt, 0, 1000, chance)
    following = wait_seconds(attempt + 1, 0, 1000, chance)
    assert this is not None
    assert following is not None
    assert following > this or following >= LONGEST_WAIT_SECONDS / 2


@given(attempts, chances, st.floats(0, 60))
def test_what_the_server_asks_for_is_the_least(attempt: int, chance: float, asked: float) -> None:
    wait = wait_seconds(attempt, 0, 1000, chance, asked)
    assert wait is not None
    assert wait >= asked


def test_a_retry_after_that_is_not_a_number_is_ignored() -> None:
    assert [retry_after(value) for value in (None, "2", "-1", "Wed, 21 Oct")] == [None, 2, 0, None]

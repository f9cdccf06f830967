"""Handlers that do one simple thing each."""

import math
import time
from typing import Any


def noop(value: Any = None) -> Any:
    """Give back what was given."""
    return value


def add(*numbers: float) -> float:
    return sum(numbers)


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def fail(message: str = "This task was asked to fail.") -> None:
    raise RuntimeError(message)


def count_primes(below: int) -> int:
    """Some honest work for a processor."""
    sieve = bytearray([1]) * max(below, 2)
    sieve[:2] = b"\0\0"
    for number in range(2, math.isqrt(max(below, 2)) + 1):
        if sieve[number]:
            multiples = range(number * number, len(sieve), number)
            sieve[number * number :: number] = bytes(len(multiples))
    return sum(sieve[:below]) if below > 0 else 0

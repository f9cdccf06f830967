"""Selectors: which tasks a command is about, and which indexes an array has.

10        one
1-10      from the first to the last, both included
1-10:2    every second of them
last      the newest task
"""

import re
from collections.abc import Iterable

import click
import msgspec

LAST = "last"
_RANGE = re.compile(r"(-?\d+)-(-?\d+)(?::(\d+))?")


class Indexes(msgspec.Struct, frozen=True):
    """first, first + step, ...: `count` numbers."""

    first: int
    count: int
    step: int = 1

    @property
    def numbers(self) -> range:
        return range(self.first, self.first + self.count * self.step, self.step)


def parse_range(text: str) -> Indexes | None:
    """What '1-10:2' stands for, or None when it is not of that form."""
    match = _RANGE.fullmatch(text)
    if match is None:
        return None
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    if last < first or step < 1:
        raise ValueError(f"{text!r} is empty: write the smaller number first, and a step from 1.")
    return Indexes(first, (last - first) // step + 1, step)


def parse_array(text: str) -> Indexes:
    """The indexes of an array: a range, or how many, counted from 0."""
    found = parse_range(text)
    if found is not None:
        return found
    if not text.isdecimal() or int(text) == 0:
        raise ValueError(f"{text!r} is not an array. Write it as 1-1000, 1-100:2 or 1000.")
    return Indexes(0, int(text))


def parse_tasks(text: str) -> Indexes | str:
    """One task id, a range of them, or LAST."""
    if text == LAST:
        return LAST
    found = Indexes(int(text), 1) if text.isdecimal() else parse_range(text)
    if found is None or found.first < 1:
        raise ValueError(f"{text!r} names no task. Write an id, a range like 1-10, or 'last'.")
    return found


def tasks(text: str) -> Indexes | str:
    """The type of an argument: one task id, a range of them, or LAST."""
    try:
        return parse_tasks(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def indexes(text: str) -> Indexes:
    """The type of an option: the indexes of an array."""
    try:
        return parse_array(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def ranges(ids: Iterable[int]) -> list[tuple[int, int]]:
    """Ids as pairs of first id and count."""
    found: list[tuple[int, int]] = []
    for one in sorted(ids):
        if found and sum(found[-1]) == one:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((one, 1))
    return found


def show_ranges(ranges: list[tuple[int, int]]) -> list[str]:
    """Pairs of first id and count, as selectors."""
    return [str(first) if count == 1 else f"{first}-{first + count - 1}" for first, count in ranges]

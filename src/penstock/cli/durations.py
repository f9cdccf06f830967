"""Durations as people write them: 45s, 5m, 1h30m, 2d, 250ms."""

import re

import click

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")


def parse(text: str) -> float:
    """Seconds. A number without a unit is seconds."""
    compact = text.replace(" ", "").lower()
    place = 0
    seconds = 0.0
    while place < len(compact):
        part = _PART.match(compact, place)
        # A bare number is only allowed alone: in '1h30' it could be anything.
        if part is None or (part[2] is None and part[0] != compact):
            raise ValueError(f"{text!r} is not a duration. Write it as 45s, 5m or 1h30m.")
        seconds += float(part[1]) * _UNITS[part[2] or "s"]
        place = part.end()
    if not compact:
        raise ValueError("A duration is missing. Write it as 45s, 5m or 1h30m.")
    return seconds


def show(seconds: float | None) -> str:
    """Short, with the two largest units."""
    if seconds is None:
        return "-"
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    days, rest = divmod(whole, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    if days:
        return f"{days}d{hours}h"
    if hours:
        return f"{hours}h{minutes}m"
    return f"{minutes}m{rest}s"


def duration(text: str) -> float:
    """The type of an option: seconds."""
    try:
        return parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error

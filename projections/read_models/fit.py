"""Numbers that no column can hold.

JSON knows no largest number, so a report or a request may hold one that Postgres does not take. It
is in the log and has happened: it must not stop the projector. Only a batch that was refused is
looked through; each such number becomes the nearest one that fits, whatever batch it comes in.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import BigInteger, Integer, SmallInteger, Table

from penstock.projections.read_models import tables
from penstock.projections.read_models.effect import Columns, NetEffect, NewRange

Row = tuple[Any, ...]

_BITS: dict[type[Any], int] = {SmallInteger: 15, Integer: 31, BigInteger: 63}


def fit(effect: NetEffect) -> None:
    """Bring every number of an effect within the bounds of its column."""
    for columns in effect.task_groups:
        _fit_columns(tables.task_groups, columns)
    for columns in (*effect.managers.values(), *effect.manager_updates.values()):
        _fit_columns(tables.managers, columns)
    effect.ranges[:] = [
        NewRange(*row)
        for row in _fitted(
            tables.task_ranges, [msgspec.structs.astuple(new) for new in effect.ranges]
        )
    ]
    for rows in (effect.active, effect.active_changed):
        rows[:] = _fitted(tables.active_tasks, rows)
    effect.archive.attempts[:] = _fitted(tables.attempts, effect.archive.attempts)
    for rows in effect.archive.tasks.values():
        rows[:] = _fitted(tables.archived_tasks, rows)


def _fit_columns(table: Table, columns: Columns) -> None:
    for name, value in columns.items():
        columns[name] = _nearest(value, _limit(table, name))


def _fitted(table: Table, rows: Sequence[Row]) -> list[Row]:
    limits = [_limit(table, column.name) for column in table.columns]
    return [
        tuple(_nearest(value, limit) for value, limit in zip(row, limits, strict=True))
        for row in rows
    ]


def _limit(table: Table, name: str) -> int | None:
    bits = _BITS.get(type(table.columns[name].type))
    return None if bits is None else 2**bits - 1


def _nearest(value: Any, limit: int | None) -> Any:
    if limit is None or not isinstance(value, int):
        return value
    return max(-limit, min(limit, value))

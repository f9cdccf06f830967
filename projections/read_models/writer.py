"""Writes the net effect of a batch and the position it reaches, in one transaction.

The position moves first and only from where this writer left it: a second writer changes no row
and stops. It is also the row that a switch to another build locks, so that a writer waits there
while it holds nothing else.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.errors import Conflict
from penstock.events import Position
from penstock.projections.read_models import tables
from penstock.projections.read_models.database import Connection
from penstock.projections.read_models.net_effect import Columns, NetEffect, NewRange
from penstock.projections.read_models.partitions import Month
from penstock.projections.read_models.statements import (
    CANCEL_RESTS,
    COUNT,
    MOVE_POSITION,
    TAKE,
    UPDATE_ACTIVE,
    UPDATE_ASSIGNMENTS,
)
from penstock.projections.read_models.task_group_change import TaskGroupChange

_ARCHIVED = [column.name for column in tables.archived_tasks.columns]
_ATTEMPTS = [column.name for column in tables.attempts.columns]
_ACTIVE = [column.name for column in tables.active_tasks.columns]
_ASSIGNMENTS = [column.name for column in tables.assignments.columns]
_RANGES = list(NewRange.__struct_fields__)


class Moved(Conflict):
    """Another writer moved the read model, or another build took its place. Load it again."""

    code = "moved"


async def write(
    connection: Connection,
    effect: NetEffect,
    partitions: set[str],
    *,
    build: str,
    before: Position,
    after: Position,
) -> None:
    """Apply a batch. `partitions` are those that exist; new ones are added to it."""
    async with connection.transaction():
        moved = await connection.fetchrow(
            MOVE_POSITION,
            after.sequence,
            after.counter,
            after.hash,
            before.sequence,
            build,
        )
        if moved is None:
            raise Moved
        await _write_task_groups(connection, effect)
        await _write_managers(connection, effect)
        await _write_ranges(connection, effect)
        await _write_assignments(connection, effect)
        await _write_active(connection, effect)
        created = await _write_archive(connection, effect, partitions)
        if effect.task_group_changes:
            await connection.execute(COUNT, *_counters(effect.task_group_changes))
    partitions |= created


async def _write_task_groups(connection: Connection, effect: NetEffect) -> None:
    for columns in effect.task_groups:
        await _insert(connection, "task_groups", columns)
    for task_group_id, columns in effect.task_group_updates.items():
        await _update(connection, "task_groups", task_group_id, columns)


async def _write_managers(connection: Connection, effect: NetEffect) -> None:
    for columns in effect.managers.values():
        changes = ", ".join(
            f"{name} = excluded.{name}" for name in columns if name not in ("id", "registered_at")
        )
        await _insert(connection, "managers", columns, f"ON CONFLICT (id) DO UPDATE SET {changes}")
    for manager_id, columns in effect.manager_updates.items():
        await _update(connection, "managers", manager_id, columns)
    for (task_group_id, manager_id), works_for_it in effect.task_group_managers.items():
        if works_for_it:
            key: Columns = {"task_group_id": task_group_id, "manager_id": manager_id}
            await _insert(connection, "task_group_managers", key, "ON CONFLICT DO NOTHING")
        else:
            await connection.execute(
                "DELETE FROM task_group_managers WHERE task_group_id = $1 AND manager_id = $2",
                task_group_id,
                manager_id,
            )


async def _insert(connection: Connection, table: str, columns: Columns, conflict: str = "") -> None:
    names = ", ".join(columns)
    places = ", ".join(f"${number}" for number in range(1, len(columns) + 1))
    await connection.execute(
        f"INSERT INTO {table} ({names}) VALUES ({places}) {conflict}", *columns.values()
    )


async def _update(connection: Connection, table: str, key: int | str, columns: Columns) -> None:
    changes = ", ".join(f"{name} = ${number}" for number, name in enumerate(columns, 2))
    await connection.execute(f"UPDATE {table} SET {changes} WHERE id = $1", key, *columns.values())


async def _write_ranges(connection: Connection, effect: NetEffect) -> None:
    if effect.taken:
        await connection.execute(TAKE, *_transposed(effect.taken))
    rests = [
        (task_group_id, change.rest_cancelled.at, change.rest_cancelled.reason)
        for task_group_id, change in effect.task_group_changes.items()
        if change.rest_cancelled is not None
    ]
    if rests:
        await connection.execute(CANCEL_RESTS, *_transposed(rests))
    if effect.ranges:
        rows = [msgspec.structs.astuple(new) for new in effect.ranges]
        await _append(connection, "task_ranges", _RANGES, rows)


async def _write_assignments(connection: Connection, effect: NetEffect) -> None:
    if effect.assignments_ended:
        await connection.execute(
            "DELETE FROM assignments WHERE first = ANY($1::bigint[])", effect.assignments_ended
        )
    if effect.assignments_changed:
        await connection.execute(UPDATE_ASSIGNMENTS, *_transposed(effect.assignments_changed)[:3])
    if effect.assignments:
        await _append(connection, "assignments", _ASSIGNMENTS, effect.assignments)


async def _write_active(connection: Connection, effect: NetEffect) -> None:
    if effect.active_ended:
        await connection.execute(
            "DELETE FROM active_tasks WHERE id = ANY($1::bigint[])", effect.active_ended
        )
    if effect.active_changed:
        await connection.execute(UPDATE_ACTIVE, *_transposed(effect.active_changed))
    if effect.active:
        await _append(connection, "active_tasks", _ACTIVE, effect.active)


async def _write_archive(
    connection: Connection, effect: NetEffect, partitions: set[str]
) -> set[str]:
    """Returns the partitions that were made."""
    created: set[str] = set()
    if effect.archive.attempts:
        await _append(connection, "attempts", _ATTEMPTS, effect.archive.attempts)
    for month, rows in effect.archive.tasks.items():
        if rows:
            if month.table not in partitions:
                await _create_partition(connection, month)
                created.add(month.table)
            await _append(connection, month.table, _ARCHIVED, rows)
    return created


async def _append(
    connection: Connection, table: str, columns: list[str], rows: Sequence[tuple[Any, ...]]
) -> None:
    await connection.copy_records_to_table(table, records=rows, columns=columns)


async def _create_partition(connection: Connection, month: Month) -> None:
    await connection.execute(
        f"CREATE TABLE IF NOT EXISTS {month.table} PARTITION OF archived_tasks FOR VALUES "
        f"FROM (to_timestamp({month.start} / 1000000)) TO (to_timestamp({month.stop} / 1000000))"
    )


def _transposed(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _counters(changes: dict[int, TaskGroupChange]) -> list[list[Any]]:
    return _transposed(
        [
            (
                task_group_id,
                change.total,
                *change.counts,
                change.rest_cancelled is not None,
                change.first_started_at,
                change.last_finished_at,
                change.rate_window,
                change.rate_current,
                change.rate_previous,
            )
            for task_group_id, change in changes.items()
        ]
    )

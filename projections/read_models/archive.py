"""Rows of `archived_tasks` and `attempts`, as tuples in the order of the columns.

This is the hot part of the projector: a short task costs one of these rows and nothing else.
"""

from typing import Any

import msgspec

from penstock.events import Retry, TaskId, TasksCancelled, TasksFinished, TasksRequeued, Timestamp
from penstock.projections.read_models.partitions import Month, month_of, plausible
from penstock.projections.read_models.states import CANCELLED, CODES, SUCCEEDED
from penstock.projections.read_models.task_group_change import TaskGroupChange
from penstock.projections.read_models.text import storable

Row = tuple[Any, ...]

_json = msgspec.json.Encoder()


class Archive:
    """What ended in a batch: tasks by the month of their end, and single attempts."""

    def __init__(self) -> None:
        self.tasks: dict[Month, list[Row]] = {}
        self.attempts: list[Row] = []
        self._month = Month(0, 0)
        self._rows: list[Row] = []

    def _rows_of(self, at: Timestamp) -> list[Row]:
        if not self._month.start <= at < self._month.stop:
            self._month = month_of(at)
            self._rows = self.tasks.setdefault(self._month, [])
        return self._rows

    def add_finished(self, event: TasksFinished, change: TaskGroupChange) -> None:
        task_group_id = event.task_group_id
        manager_id = event.manager_id or None
        rows = self._rows_of(event.at)
        start, stop = self._month
        append = rows.append
        encode = _json.encode
        counts = change.counts
        first_started = change.first_started_at or 0
        last_ended = succeeded = 0
        for result in event.tasks:
            state = SUCCEEDED
            if result.outcome == "succeeded":
                succeeded += 1
            else:
                state = CODES[result.outcome]
                counts[state] += 1
            started = result.started_at
            ended = result.ended_at
            if not start <= ended < stop:
                ended = plausible(ended, event.at)
                append = self._rows_of(ended).append
            if ended > last_ended:
                last_ended = ended
            if started and not start <= started <= ended:
                started = min(plausible(started, event.at), ended)
            if started and (not first_started or started < first_started):
                first_started = started
            append(
                (
                    result.task_id,
                    task_group_id,
                    started or None,
                    ended,
                    result.max_rss_bytes or None,
                    result.cpu_seconds or None,
                    result.attempt,
                    state,
                    result.worker,
                    result.exit_code,
                    result.signal,
                    result.output_truncated,
                    manager_id,
                    result.cause,
                    storable(result.message) if result.message else None,
                    storable(result.stdout) if result.stdout else None,
                    storable(result.stderr) if result.stderr else None,
                    None if result.result is None else encode(result.result).decode(),
                )
            )
            append = rows.append
        counts[SUCCEEDED] += succeeded
        change.first_started_at = first_started or None
        change.finished(len(event.tasks), last_ended, event.at)

    def add_cancelled(self, event: TasksCancelled, task_id: TaskId, attempt: int) -> None:
        """A task that no executor held when it was cancelled."""
        self._rows_of(event.at).append(
            (
                task_id,
                event.task_group_id,
                None,
                event.at,
                None,
                None,
                attempt,
                CANCELLED,
                None,
                None,
                None,
                False,
                None,
                "cancelled",
                storable(event.reason) or None,
                None,
                None,
                None,
            )
        )

    def add_attempt(self, event: TasksRequeued, retry: Retry) -> None:
        """An attempt that did not decide its task."""
        result = retry.result
        self.attempts.append(
            (
                result.task_id,
                result.attempt,
                plausible(result.started_at, event.at) if result.started_at else None,
                plausible(result.ended_at, event.at),
                retry.counts,
                result.worker,
                result.exit_code,
                result.signal,
                result.output_truncated,
                event.manager_id or None,
                result.cause,
                storable(result.message) or None,
                storable(result.stdout) or None,
                storable(result.stderr) or None,
            )
        )

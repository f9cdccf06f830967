"""Callers who wait for the end of a task, told as soon as it is durable."""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from penstock.errors import NotLeader
from penstock.events import AnyEvent, AttemptResult, TaskId, TasksFinished


class Ended(msgspec.Struct, frozen=True):
    """The end of a task, and the sequence by which it is in the log."""

    event: TasksFinished
    result: AttemptResult
    sequence: int


Expected: TypeAlias = asyncio.Future[Ended | None]
"""None when the task ended without having run: the read model will tell."""


class Waiters:
    def __init__(self) -> None:
        self._waiting: dict[TaskId, list[Expected]] = {}

    def expect(self, task_id: TaskId) -> Expected:
        """A future for the end of a task that has not ended yet."""
        future: Expected = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(task_id, []).append(future)
        future.add_done_callback(lambda _: self._forget(task_id, future))
        return future

    def announce(self, events: list[AnyEvent], sequence: int) -> None:
        if not self._waiting:
            return
        for event in events:
            if not isinstance(event, TasksFinished):
                continue
            for result in event.tasks:
                for future in list(self._waiting.get(result.task_id, ())):
                    if not future.done():
                        future.set_result(Ended(event, result, sequence))

    def give_up(self, has_ended: Callable[[TaskId], bool]) -> None:
        """Tasks were cancelled before they ran: nobody will report their end."""
        for task_id in [task_id for task_id in self._waiting if has_ended(task_id)]:
            for future in list(self._waiting.get(task_id, ())):
                if not future.done():
                    future.set_result(None)

    def abandon(self) -> None:
        """The role is lost: whoever waits has to ask again."""
        for futures in list(self._waiting.values()):
            for future in list(futures):
                if not future.done():
                    future.set_exception(NotLeader())

    def _forget(self, task_id: TaskId, future: Expected) -> None:
        futures = self._waiting[task_id]
        futures.remove(future)
        if not futures:
            del self._waiting[task_id]

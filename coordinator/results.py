"""Callers who wait for the end of a task, told as soon as it is durable."""

import asyncio

from penstock.errors import NotLeader
from penstock.events import AnyEvent, AttemptResult, TaskId, TasksFinished


class Results:
    def __init__(self) -> None:
        self._waiting: dict[TaskId, list[asyncio.Future[tuple[TasksFinished, AttemptResult]]]] = {}

    def expect(self, task_id: TaskId) -> asyncio.Future[tuple[TasksFinished, AttemptResult]]:
        """A future for the end of a task that has not ended yet."""
        future: asyncio.Future[tuple[TasksFinished, AttemptResult]] = (
            asyncio.get_running_loop().create_future()
        )
        self._waiting.setdefault(task_id, []).append(future)
        future.add_done_callback(lambda _: self._forget(task_id, future))
        return future

    def announce(self, events: list[AnyEvent]) -> None:
        if not self._waiting:
            return
        for event in events:
            if not isinstance(event, TasksFinished):
                continue
            for result in event.tasks:
                for future in list(self._waiting.get(result.task_id, ())):
                    if not future.done():
                        future.set_result((event, result))

    def abandon(self) -> None:
        """The role is lost: whoever waits has to ask again."""
        for futures in list(self._waiting.values()):
            for future in list(futures):
                if not future.done():
                    future.set_exception(NotLeader())

    def _forget(
        self, task_id: TaskId, future: asyncio.Future[tuple[TasksFinished, AttemptResult]]
    ) -> None:
        futures = self._waiting[task_id]
        futures.remove(future)
        if not futures:
            del self._waiting[task_id]

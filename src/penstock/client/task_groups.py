"""Calls about task groups."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

from penstock.client.calls import Calls, decode, given, new_key, segment
from penstock.client.connection import Request
from penstock.client.models import CancelledTasks, Progress, TaskGroup, TaskGroupState
from penstock.client.server_sent_events import EventReader


class TaskGroupCalls(Calls):
    async def create_task_group(
        self,
        name: str,
        *,
        group: str | None = None,
        description: str | None = None,
        priority: int | None = None,
        tags: Sequence[str] | None = None,
        labels: Sequence[str] | None = None,
        max_managers: int | None = None,
        task_prefetch_count: int | None = None,
        key: str | None = None,
    ) -> TaskGroup:
        document = {
            "name": name,
            "group": group,
            "description": description,
            "priority": priority,
            "tags": tags,
            "labels": labels,
            "max_managers": max_managers,
            "task_prefetch_count": task_prefetch_count,
        }
        present = {field: value for field, value in document.items() if value is not None}
        return await self._send("POST", "/task-groups", present, TaskGroup, key or new_key())

    async def task_group(self, task_group: int | str) -> TaskGroup:
        """One task group, by id or name."""
        return await self._get(f"/task-groups/{segment(task_group)}", TaskGroup)

    def task_groups(
        self, *, state: TaskGroupState | None = None, limit: int | None = None
    ) -> AsyncIterator[TaskGroup]:
        return self._pages("/task-groups", TaskGroup, given(state=state), limit)

    async def close_task_group(self, task_group: int | str, *, reason: str = "") -> TaskGroup:
        """Accept no more tasks: the group is complete when those that it has are done."""
        path = f"/task-groups/{segment(task_group)}/close"
        return await self._send("POST", path, _reason(reason), TaskGroup)

    async def reopen_task_group(self, task_group: int | str, *, reason: str = "") -> TaskGroup:
        path = f"/task-groups/{segment(task_group)}/reopen"
        return await self._send("PUT", path, _reason(reason), TaskGroup)

    async def cancel_task_group(
        self, task_group: int | str, *, reason: str = "", cancel_running_tasks: bool = True
    ) -> CancelledTasks:
        document = {**_reason(reason), "cancel_running_tasks": cancel_running_tasks}
        path = f"/task-groups/{segment(task_group)}/cancel"
        return await self._send("POST", path, document, CancelledTasks)

    async def progress(self, task_group: int | str) -> Progress:
        return await self._get(f"/task-groups/{segment(task_group)}/progress", Progress)

    async def follow_progress(self, task_group: int | str) -> AsyncGenerator[Progress, None]:
        """The progress whenever it changes, until every task of the group is done."""
        request = Request(
            method="GET",
            path=f"/task-groups/{segment(task_group)}/progress",
            parameters=self._fresh({}),
            headers={"Accept": "text/event-stream"},
            repeatable=True,
        )
        reader = EventReader()

        def again() -> Request:
            reader.forget()
            return request

        async with aclosing(self._connection.lines(again, endless=True)) as lines:
            async for line in lines:
                event = reader.read(line)
                if event is None:
                    continue
                if event.data:
                    yield decode(event.data, Progress)
                if event.name == "done":
                    return


def _reason(reason: str) -> dict[str, str | bool]:
    return {"reason": reason} if reason else {}

"""Calls about tasks.

Every submission carries an idempotency key, made up when the caller gives none. A submission whose
answer got lost can therefore be repeated, and its tasks exist once.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec

from penstock.client.calls import JSON, Calls, decode, given, new_key, segment
from penstock.client.connection import Request
from penstock.client.models import Output, Submission, Task
from penstock.errors import Invalid
from penstock.events.spec import TaskArray, TaskSpec
from penstock.events.tasks import TaskState

DEFAULT_TASK_GROUP = "default"
LONG_POLL_SECONDS = 30.0


class TaskCalls(Calls):
    async def submit(
        self,
        tasks: TaskSpec | Sequence[TaskSpec],
        *,
        task_group: int | str = DEFAULT_TASK_GROUP,
        wait: float | None = None,
        key: str | None = None,
    ) -> Submission:
        """Submit one task or a list, in one exchange. The answer means that they are on disk.

        With `wait`, for one task, the answer comes when the task ends, at most after so many
        seconds, and then holds its result.
        """
        document: dict[str, Any]
        if isinstance(tasks, TaskSpec):
            document = {"task_group": task_group, "task": tasks}
        else:
            if wait is not None:
                raise Invalid("Only a single task can be waited for in the same exchange.")
            document = {"task_group": task_group, "tasks": tasks}
        return await self._submit(document, given(wait=wait), key, wait or 0.0)

    async def submit_array(
        self,
        template: TaskSpec,
        *,
        count: int | None = None,
        first_index: int = 0,
        step: int = 1,
        parameters: list[dict[str, Any]] | None = None,
        task_group: int | str = DEFAULT_TASK_GROUP,
        key: str | None = None,
    ) -> Submission:
        """Submit many tasks of one template: `count` of them, or one for each row of `parameters`.

        `{index}` in the template's texts, and `{column}` for each column of a row, are replaced.
        """
        array = TaskArray(
            template=template,
            count=count,
            first_index=first_index,
            step=step,
            parameters=parameters,
        )
        return await self._submit({"task_group": task_group, "array": array}, {}, key)

    async def run(
        self,
        task: TaskSpec,
        *,
        task_group: int | str = DEFAULT_TASK_GROUP,
        timeout_seconds: float | None = None,
        key: str | None = None,
    ) -> Task:
        """Submit one task and wait for its end, in one exchange when it is short.

        After `timeout_seconds` the task is returned as it is then.
        """
        clock = asyncio.get_running_loop()
        deadline = None if timeout_seconds is None else clock.time() + timeout_seconds
        wait = LONG_POLL_SECONDS if timeout_seconds is None else timeout_seconds
        submission = await self.submit(
            task, task_group=task_group, wait=min(wait, LONG_POLL_SECONDS), key=key
        )
        if submission.results:
            return submission.results[0]
        left = None if deadline is None else max(0.0, deadline - clock.time())
        return await self.wait(submission.ranges[0][0], timeout_seconds=left)

    async def task(self, task_id: int) -> Task:
        return await self._get(f"/tasks/{segment(task_id)}", Task)

    async def wait(self, task_id: int, *, timeout_seconds: float | None = None) -> Task:
        """The task when it has ended, or as it is after `timeout_seconds`."""
        clock = asyncio.get_running_loop()
        deadline = None if timeout_seconds is None else clock.time() + timeout_seconds
        while True:
            wait = LONG_POLL_SECONDS
            if deadline is not None:
                wait = max(0.0, min(wait, deadline - clock.time()))
            path = f"/tasks/{segment(task_id)}"
            task = await self._get(path, Task, given(wait=wait), wait_seconds=wait)
            if task.ended or (deadline is not None and clock.time() >= deadline):
                return task

    def tasks(
        self,
        *,
        task_group: int | str | None = None,
        state: TaskState | None = None,
        after: int | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Task]:
        """Tasks in the order of their ids, those after the id `after`."""
        parameters = given(task_group=task_group, state=state)
        return self._pages("/tasks", Task, parameters, limit, after)

    async def output(self, task_id: int) -> Output:
        return await self._get(f"/tasks/{segment(task_id)}/output", Output)

    async def cancel_task(self, task_id: int, *, reason: str = "") -> Task:
        document = {"reason": reason} if reason else {}
        return await self._send("POST", f"/tasks/{segment(task_id)}/cancel", document, Task)

    async def _submit(
        self,
        document: Any,
        parameters: Mapping[str, str],
        key: str | None,
        wait_seconds: float = 0.0,
    ) -> Submission:
        try:
            body = msgspec.json.encode(document)
        except (TypeError, ValueError) as error:
            raise Invalid(f"The task cannot be written as JSON: {error}.") from error
        return await self._submit_body(body, JSON, parameters, key, wait_seconds)

    async def _submit_body(
        self,
        body: bytes,
        headers: Mapping[str, str],
        parameters: Mapping[str, str],
        key: str | None,
        wait_seconds: float = 0.0,
    ) -> Submission:
        reply = await self._connection.request(
            Request(
                method="POST",
                path="/tasks",
                parameters=parameters,
                body=body,
                headers={**headers, "Idempotency-Key": key or new_key()},
                repeatable=True,
                wait_seconds=wait_seconds,
            )
        )
        submission = decode(reply.body, Submission)
        return msgspec.structs.replace(submission, sequence=reply.sequence)

"""The reading side: everything that HTTP answers from Postgres."""

import asyncio
from datetime import datetime
from types import TracebackType
from typing import Any, Self

import asyncpg
import msgspec

from penstock.clock import Clock, SystemClock
from penstock.errors import Invalid, NotFound, Unavailable
from penstock.events import ManagerId, TaskGroupId, TaskId
from penstock.events.tasks import TaskState
from penstock.projections.read_models import manager_queries, task_group_queries, task_queries
from penstock.projections.read_models.database import AWAY, REPLACED, reading_pool
from penstock.projections.read_models.position_watch import PositionWatch
from penstock.projections.read_models.states import CODES
from penstock.projections.read_models.tables import SCHEMA
from penstock.projections.read_models.text import storable
from penstock.projections.read_models.views import (
    AttemptView,
    ManagerView,
    Page,
    ProgressView,
    SpecPlace,
    SystemCounts,
    TaskGroupView,
    TaskView,
    moment,
)

DEFAULT_GROUP = "default"

_MAX_ID = 2**63 - 1


class ReadModel:
    """Use it as a context. Without a database it opens as well, and raises `Unavailable` later."""

    def __init__(
        self,
        database_url: str,
        *,
        schema: str = SCHEMA,
        clock: Clock | None = None,
        pool_size: int = 8,
    ) -> None:
        self._pool = reading_pool(database_url, schema, pool_size)
        self._watch = PositionWatch(database_url, schema)
        self._clock = clock or SystemClock()
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._pool
        self._watching = asyncio.create_task(self._watch.run(), name="watch the read model")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        self._pool.terminate()

    @property
    def position_seen(self) -> int:
        """The last sequence that the read model was heard to hold, at no cost."""
        return self._watch.sequence

    async def position(self) -> int:
        """The sequence that the read model holds now."""
        rows = await self._fetch("SELECT sequence FROM position")
        sequence: int = rows[0]["sequence"] if rows else 0
        return sequence

    async def wait_for(self, sequence: int, timeout_seconds: float) -> None:
        """Return when the read model holds a sequence. Raises `Unavailable` if it takes longer."""
        try:
            await self._watch.wait_for(sequence, timeout_seconds)
        except Unavailable:
            if await self.position() < sequence:
                raise

    async def task(self, task_id: TaskId) -> TaskView | None:
        """One task, with its earlier attempts."""
        rows = await self._fetch(task_queries.LOOK_UP, [_id(task_id)])
        if not rows:
            return None
        view = task_queries.task_view(rows[0], self._now())
        if view.attempt == 0:
            return view
        rows = await self._fetch(task_queries.ATTEMPTS, view.id)
        attempts = [AttemptView(**dict(row)) for row in rows if row["attempt"] <= view.attempt]
        return msgspec.structs.replace(view, attempts=attempts)

    async def task_source(self, task_id: TaskId) -> SpecPlace | None:
        """Where in the log the spec of a task is."""
        rows = await self._fetch(task_queries.SPEC_PLACE, _id(task_id))
        return SpecPlace(**dict(rows[0])) if rows else None

    async def tasks(
        self,
        task_group_id: TaskGroupId | None = None,
        state: TaskState | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[TaskView]:
        """Tasks in the order of their ids, those after the cursor."""
        queries = task_queries.candidates(state, of_one_task_group=task_group_id is not None)
        after = _cursor(cursor)
        found: list[TaskView] = []
        while True:
            ids: set[TaskId] = set()
            for query, further in queries:
                rows = await self._fetch(query, task_group_id, after, limit + 1, *further)
                ids.update(row["id"] for row in rows)
            page = sorted(ids)[: limit + 1]
            now = self._now()
            for row in await self._fetch(task_queries.LOOK_UP, page):
                view = task_queries.task_view(row, now)
                if state is None or view.state == state:
                    found.append(view)
            if len(found) > limit:
                return Page(found[:limit], str(found[limit - 1].id))
            if len(page) <= limit:
                return Page(found)
            after = page[-1]

    async def task_group(self, key: TaskGroupId | str) -> TaskGroupView | None:
        """By id (a number, or its digits), by group/name, or by a name in the default group."""
        row = await self._task_group(key)
        return None if row is None else task_group_queries.task_group_view(row)

    async def progress(self, key: TaskGroupId | str) -> ProgressView:
        """How far a task group has come, and how fast. Raises `NotFound`."""
        row = await self._task_group(key)
        if row is None:
            raise NotFound(f"There is no task group {key!r}.")
        return task_group_queries.progress_view(row, self._now())

    async def _task_group(self, key: TaskGroupId | str) -> asyncpg.Record | None:
        if isinstance(key, int) or (key.isascii() and key.isdigit()):
            rows = await self._fetch(task_group_queries.BY_ID, self._now(), _id(int(key)))
        else:
            group, slash, name = storable(key).partition("/")
            if not slash:
                group, name = DEFAULT_GROUP, group
            rows = await self._fetch(task_group_queries.BY_NAME, self._now(), group, name)
        return rows[0] if rows else None

    async def task_groups(
        self, state: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> Page[TaskGroupView]:
        """Task groups in the order of their ids, those after the cursor."""
        arguments = [self._now(), _cursor(cursor), limit + 1]
        if state is None:
            rows = await self._fetch(task_group_queries.ALL, *arguments)
        else:
            rows = await self._fetch(task_group_queries.BY_STATE, *arguments, storable(state))
        groups = [task_group_queries.task_group_view(row) for row in rows]
        return Page(groups[:limit], str(groups[limit - 1].id) if len(groups) > limit else None)

    async def manager(self, manager_id: ManagerId) -> ManagerView | None:
        rows = await self._fetch(manager_queries.BY_ID, storable(manager_id))
        return manager_queries.manager_view(rows[0]) if rows else None

    async def managers(self) -> list[ManagerView]:
        """All managers, by their names."""
        rows = await self._fetch(manager_queries.ALL)
        return [manager_queries.manager_view(row) for row in rows]

    async def counts(self) -> SystemCounts:
        """Everything in numbers."""
        groups = await self._fetch(task_group_queries.STATES)
        tasks = task_group_queries.counts(
            (await self._fetch(task_group_queries.TASK_STATES, self._now()))[0]
        )
        managers = await self._fetch(manager_queries.STATES)
        return SystemCounts(
            task_groups={row["state"]: row["count"] for row in groups},
            tasks={state: getattr(tasks, state) for state in CODES},
            managers={row["state"]: row["count"] for row in managers},
        )

    def _now(self) -> datetime:
        return moment(self._clock.now())

    async def _fetch(self, query: str, *arguments: Any) -> list[asyncpg.Record]:
        """Run a query, once more when the read model was replaced under it."""
        try:
            try:
                return await self._pool.fetch(query, *arguments)
            except REPLACED:
                return await self._pool.fetch(query, *arguments)
        except REPLACED as error:
            raise Unavailable("The read model is not there yet. Start a projector.") from error
        except AWAY as error:
            raise Unavailable("The read model cannot be reached. Try again in a moment.") from error


def _id(number: int) -> int:
    """A number beyond what the database can hold names nothing, like any other unknown one."""
    return min(max(number, 0), _MAX_ID - 1)


def _cursor(text: str | None) -> int:
    if text is None:
        return 0
    if not (text.isascii() and text.isdigit()):
        raise Invalid("'cursor' must be what 'next' said on the page before.", field="cursor")
    return _id(int(text))

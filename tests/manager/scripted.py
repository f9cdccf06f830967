"""A coordinator that does what a test tells it, on the real NATS, and a real manager process."""

import asyncio
import contextlib
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import nats
from aiohttp import web
from nats.aio.client import Client
from nats.aio.msg import Msg

from penstock.events.manager_protocol import (
    AssignGroup,
    Heartbeat,
    Push,
    PushMessage,
    Report,
    ReportReply,
    Sync,
    SyncReply,
    TaskBatch,
    Tasks,
)
from penstock.events.subjects import Subjects
from penstock.events.tasks import AttemptResult

MANAGER = "m1"
TOKEN = "secret-token"
GROUP = AssignGroup(task_group_id=1, name="tests")


class ScriptedCoordinator:
    """Answers everything, remembers what it heard, and pushes what it is told to push."""

    def __init__(self, client: Client, subjects: Subjects, url: str) -> None:
        self.client = client
        self.subjects = subjects
        self.url = url
        self.epoch = 1
        self.pushes = 0
        self.registrations: list[dict[str, Any]] = []
        self.syncs: list[Sync] = []
        self.reports: list[Report] = []
        self.heartbeats: list[Heartbeat] = []
        self.finished: dict[tuple[int, int], AttemptResult] = {}
        self.repeated: list[AttemptResult] = []
        self.capacity = 0
        self.answers_reports = True
        self.report_error = ""
        self.on_sync: Callable[[Sync], SyncReply] = lambda sync: SyncReply(
            epoch=self.epoch, task_group=GROUP
        )
        self.lacking: Callable[[Sync], list[TaskBatch]] = lambda sync: []
        """What to push right after the answer to a synchronisation."""
        self.answers_as_epoch: int | None = None
        self._spec: dict[str, Any] = {}
        self._to_do: deque[tuple[int, int]] = deque()
        self._given: dict[int, int] = {}
        """Attempts of offered tasks that the manager has."""
        self._changed = asyncio.Event()

    async def listen(self) -> None:
        await self.client.subscribe(self.subjects.sync("*"), cb=self._sync)
        await self.client.subscribe(self.subjects.report("*"), cb=self._report)
        await self.client.subscribe(self.subjects.heartbeat("*"), cb=self._heartbeat)
        await asyncio.sleep(0)
        await self.client.flush()

    async def register(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == f"Bearer {TOKEN}"
        self.registrations.append(await request.json())
        self._change()
        return web.json_response({"manager_id": MANAGER}, status=201)

    async def _sync(self, message: Msg) -> None:
        sync = msgspec.msgpack.decode(message.data, type=Sync)
        self.syncs.append(sync)
        self.capacity = sync.capacity
        self.pushes = 0
        await message.respond(msgspec.msgpack.encode(self.on_sync(sync)))
        lacking = self.lacking(sync)
        if lacking:
            await self.push(Tasks(batches=lacking))
        held = {(held.task_id, held.attempt) for held in sync.held}
        self._take_back([given for given in self._given.items() if given not in held])
        await self._top_up()
        self._change()

    async def _report(self, message: Msg) -> None:
        report = msgspec.msgpack.decode(message.data, type=Report)
        self.reports.append(report)
        if self.answers_reports and not self.report_error:
            self.capacity = report.capacity
            for result in report.finished:
                key = (result.task_id, result.attempt)
                if key in self.finished:
                    self.repeated.append(result)
                else:
                    self.finished[key] = result
                self._given.pop(result.task_id, None)
            self._take_back([(task.task_id, task.attempt) for task in report.returned])
        if self.answers_reports:
            epoch = self.epoch if self.answers_as_epoch is None else self.answers_as_epoch
            reply = ReportReply(epoch=epoch, sequence=len(self.reports), error=self.report_error)
            await message.respond(msgspec.msgpack.encode(reply))
        await self._top_up()
        self._change()

    async def _heartbeat(self, message: Msg) -> None:
        self.heartbeats.append(msgspec.msgpack.decode(message.data, type=Heartbeat))
        self._change()

    def _change(self) -> None:
        self._changed.set()

    async def until(self, condition: Callable[[], Any], within_seconds: float = 20.0) -> None:
        """Wait until something that was heard makes the condition true."""
        async with asyncio.timeout(within_seconds):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def push(self, *messages: PushMessage, number: int | None = None) -> None:
        self.pushes = self.pushes + 1 if number is None else number
        push = Push(epoch=self.epoch, number=self.pushes, messages=list(messages))
        await self.client.publish(self.subjects.push(MANAGER), msgspec.msgpack.encode(push))

    async def run(self, first: int, count: int = 1, **spec: Any) -> None:
        """Push tasks of one spec: more than one are an array."""
        await self.push(Tasks(batches=[batch(first, count, **spec)]))

    async def offer(self, first: int, count: int, **spec: Any) -> None:
        """Have tasks of one spec run, never more at a time than the manager wants."""
        self._spec = spec
        self._to_do.extend((task, 1) for task in range(first, first + count))
        await self._top_up()

    def _take_back(self, tasks: list[tuple[int, int]]) -> None:
        for task_id, attempt in tasks:
            if self._given.pop(task_id, None) is not None:
                self._to_do.append((task_id, attempt + 1))

    async def _top_up(self) -> None:
        batches: list[TaskBatch] = []
        while self._to_do and len(self._given) < self.capacity:
            task_id, attempt = self._to_do.popleft()
            self._given[task_id] = attempt
            batches.append(batch(task_id, 1, attempt, **self._spec))
        if batches:
            await self.push(Tasks(batches=batches))

    async def all_ended(self, first: int, count: int) -> list[AttemptResult]:
        """Wait for the results of offered tasks, at whatever attempt."""
        tasks = range(first, first + count)
        await self.until(lambda: {task_id for task_id, _ in self.finished} >= set(tasks), 60.0)
        return [result for (task_id, _), result in self.finished.items() if task_id in tasks]

    async def ended(self, *task_ids: int, within_seconds: float = 20.0) -> list[AttemptResult]:
        """Wait for the results of these tasks, at their first attempt."""
        await self.until(
            lambda: all((task_id, 1) in self.finished for task_id in task_ids), within_seconds
        )
        return [self.finished[task_id, 1] for task_id in task_ids]

    def started(self, task_id: int) -> bool:
        return any(start.task_id == task_id for report in self.reports for start in report.started)


def batch(first: int, count: int = 1, attempt: int = 1, **spec: Any) -> TaskBatch:
    return TaskBatch(
        task_group_id=1,
        first=first,
        count=count,
        attempt=attempt,
        spec=msgspec.json.encode(spec),
        array=count > 1,
    )


@contextlib.asynccontextmanager
async def coordinator(nats_url: str, prefix: str) -> AsyncIterator[ScriptedCoordinator]:
    client = await nats.connect(
        nats_url, max_reconnect_attempts=-1, reconnect_time_wait=0.1, error_cb=_ignore
    )
    application = web.Application()
    runner = web.AppRunner(application)
    scripted = ScriptedCoordinator(client, Subjects(prefix), "")
    application.router.add_post("/managers", scripted.register)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    scripted.url = f"http://{host}:{port}"
    await scripted.listen()
    try:
        yield scripted
    finally:
        await client.close()
        await runner.cleanup()


class ManagerProcess:
    """A manager as a user starts it."""

    def __init__(
        self, scripted: ScriptedCoordinator, nats_url: str, data: Path, workers: int = 2
    ) -> None:
        self.environment = {
            **{name: value for name, value in os.environ.items() if "PENSTOCK" not in name},
            "PENSTOCK_NATS_URL": nats_url,
            "PENSTOCK_URL": scripted.url,
            "PENSTOCK_TOKEN": TOKEN,
            "PENSTOCK_PREFIX": scripted.subjects.prefix,
            "PENSTOCK_DATA": str(data),
            "PENSTOCK_MANAGER_ID": MANAGER,
            "PENSTOCK_WORKERS": str(workers),
            "PENSTOCK_HEARTBEAT_SECONDS": "0.5",
        }
        self._scripted = scripted
        self.data = data
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it and wait until it has synchronised."""
        syncs = len(self._scripted.syncs)
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "penstock.manager", env=self.environment, cwd=self.data
        )
        await self._scripted.until(lambda: len(self._scripted.syncs) > syncs)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    async def kill(self) -> None:
        """`kill -9` of the manager alone."""
        assert self.process is not None
        self.process.kill()
        await self.process.wait()

    async def stop(self) -> int:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        return await self.process.wait()

    def workers(self) -> dict[int, int]:
        """Numbers and pids of the worker processes, from the state file."""
        state = msgspec.json.decode((self.data / "manager" / MANAGER / "state.json").read_bytes())
        return {worker["number"]: worker["pid"] for worker in state["workers"]}


@contextlib.asynccontextmanager
async def manager(
    scripted: ScriptedCoordinator, nats_url: str, data: Path, workers: int = 2
) -> AsyncIterator[ManagerProcess]:
    process = ManagerProcess(scripted, nats_url, data, workers)
    await process.start()
    try:
        yield process
    finally:
        if process.process is not None and process.process.returncode is not None:
            # A test that killed it has to leave no workers behind.
            await process.start()
        await process.stop()


async def _ignore(error: Exception) -> None:
    """A test that stops NATS expects the client to complain."""

"""Small commits for tests of the log."""

import asyncio
import uuid
from collections.abc import AsyncIterator

from penstock.events import Entry, Log, LogWriter, ManagerOffline, Position
from penstock.events.commit import assemble, encode_event

NOW = 1_700_000_000_000_000
LIMIT_SECONDS = 60.0
"""A test that waits for ever for what never comes would take the whole run with it."""


def body(writer: LogWriter, name: str = "m", *, after: Position | None = None) -> bytes:
    """A commit that follows the writer's position."""
    event = ManagerOffline(at=NOW, actor="test", manager_id=name)
    return assemble(
        after or writer.position,
        commit_id=uuid.uuid4().hex,
        epoch=writer.epoch,
        at=NOW,
        events=[encode_event(event)],
    )


async def append(writer: LogWriter, *names: str) -> list[Position]:
    async with asyncio.timeout(LIMIT_SECONDS):
        return [await writer.append(body(writer, name)) for name in names]


async def next_of(following: AsyncIterator[Entry]) -> Entry:
    async with asyncio.timeout(LIMIT_SECONDS):
        return await anext(following)


def names(entries: list[Entry]) -> list[str]:
    """What the commits are about, elections shown as the node in brackets."""
    found = []
    for entry in entries:
        for event in entry.commit.events:
            if isinstance(event, ManagerOffline):
                found.append(event.manager_id)
            else:
                found.append(f"[{getattr(event, 'node', '?')}]")
    return found


async def read_to(log: Log, last: int, after: Position) -> list[Entry]:
    """Follow the log until a sequence."""
    entries: list[Entry] = []
    if after.sequence >= last:
        return entries
    following: AsyncIterator[Entry] = log.follow(after)
    while not entries or entries[-1].position.sequence < last:
        entries.append(await next_of(following))
    await following.aclose()  # type: ignore[attr-defined]
    return entries

"""Small commits for tests of the log."""

import uuid
from collections.abc import AsyncIterator

from penstock.events import Entry, Log, LogWriter, ManagerOffline, Position
from penstock.events.commit import assemble, encode_event

NOW = 1_700_000_000_000_000


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
    return [await writer.append(body(writer, name)) for name in names]


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
    async for entry in following:
        entries.append(entry)
        if entry.position.sequence >= last:
            break
    await following.aclose()  # type: ignore[attr-defined]
    return entries

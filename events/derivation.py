"""The messages for integrators: one for each event of a commit, on a subject of its own."""

import re

import msgspec

from penstock.events.commit import AnyEvent, encode_event
from penstock.events.jetstream_api import MESSAGE_ID
from penstock.events.log import Entry
from penstock.events.managers import LeaderElected, ManagerOffline, ManagerOnline, ManagerRegistered
from penstock.events.subjects import HEADER_HASH, HEADER_INDEX, HEADER_SEQUENCE, Subjects
from penstock.events.task_groups import GroupCreated

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


class Derived(msgspec.Struct, frozen=True, kw_only=True):
    """One message of the stream."""

    subject: str
    body: bytes
    headers: dict[str, str]


def derive(subjects: Subjects, entry: Entry) -> list[Derived]:
    """The messages that stand for one commit."""
    sequence = str(entry.position.sequence)
    messages = []
    for index, event in enumerate(entry.commit.events):
        entity, entity_id = entity_of(event)
        messages.append(
            Derived(
                subject=subjects.event(entity, safe(entity_id), tag_of(event)),
                body=encode_event(event),
                headers={
                    MESSAGE_ID: f"{sequence}.{index}",
                    HEADER_SEQUENCE: sequence,
                    HEADER_INDEX: str(index),
                    HEADER_HASH: entry.position.hash,
                },
            )
        )
    return messages


def entity_of(event: AnyEvent) -> tuple[str, str]:
    """What an event is about: kind and id."""
    match event:
        case LeaderElected():
            return "coordinator", event.node
        case GroupCreated():
            return "group", event.group
        case ManagerRegistered() | ManagerOnline() | ManagerOffline():
            return "manager", event.manager_id
        case _:
            return "task_group", str(event.task_group_id)


def tag_of(event: AnyEvent) -> str:
    return str(event.__struct_config__.tag)


def safe(name: str) -> str:
    """A name as one token of a subject: any other character becomes `=` and its code point."""
    return _UNSAFE.sub(lambda match: f"={ord(match.group()):X}=", name) or "="

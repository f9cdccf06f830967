"""The streams of a deployment and the settings that its promises rest on.

`LOG` is the truth: nothing in it may be deleted, expire or be rolled up, and when it is full it
refuses to grow instead of forgetting. The others can be derived again or are short-lived.
"""

from typing import Any

from penstock.errors import Invalid
from penstock.events.connection import Connection
from penstock.events.jetstream_api import (
    STREAM_NAME_IN_USE,
    STREAM_NOT_FOUND,
    Refused,
    StreamAnswer,
    ask,
    stream_info,
)
from penstock.events.subjects import Subjects

NANOSECONDS = 1_000_000_000
EVENTS_MAX_AGE_SECONDS = 7 * 24 * 3600

_MATTERS: dict[str, object] = {
    "subjects": [],
    "retention": "limits",
    "storage": "file",
    "discard": "old",
    "max_age": 0,
    "max_msgs": -1,
    "max_msgs_per_subject": -1,
    "deny_delete": False,
    "allow_rollup_hdrs": False,
    "allow_msg_ttl": False,
    "allow_atomic": False,
    "allow_direct": False,
    "persist_mode": "",
    "sources": None,
    "mirror": None,
    "subject_transform": None,
}
"""Settings that an existing stream is checked for, and what the server means when it omits one."""

_OPERATORS_CHOICE = {"EVENTS": {"max_age", "max_msgs"}, "LEASE": {"storage"}}
"""What an operator may have set otherwise without breaking a promise."""


def stream_configurations(
    subjects: Subjects,
    *,
    replicas: int = 1,
    log_max_bytes: int = -1,
    events_max_age_seconds: int = EVENTS_MAX_AGE_SECONDS,
) -> dict[str, dict[str, Any]]:
    shared = {"storage": "file", "retention": "limits", "num_replicas": replicas}
    return {
        "LOG": shared
        | {
            "name": subjects.log_stream,
            "subjects": [subjects.log],
            "compression": "s2",
            "discard": "new",
            "max_age": 0,
            "max_bytes": log_max_bytes,
            "deny_delete": True,
            "allow_rollup_hdrs": False,
            "allow_msg_ttl": False,
            "allow_direct": True,
        },
        "EVENTS": shared
        | {
            "name": subjects.events_stream,
            "subjects": [subjects.events],
            "compression": "s2",
            "discard": "old",
            "max_age": events_max_age_seconds * NANOSECONDS,
            # The server keeps every message id of this window in memory.
            "duplicate_window": min(10, events_max_age_seconds) * NANOSECONDS,
            "deny_delete": True,
            "allow_atomic": True,
            "allow_direct": True,
        },
        "SNAPSHOTS": shared
        | {
            "name": subjects.snapshots_stream,
            "subjects": [subjects.snapshots],
            "discard": "new",
            "allow_direct": True,
        },
        "LEASE": shared
        | {
            "name": subjects.lease_stream,
            # Written every second and worthless after three: a disk that is full must not cost the
            # leadership, or users would hear that nobody leads instead of what to do about it.
            # What a restarted server forgets is written anew (see `lease.py`).
            "storage": "memory",
            "subjects": [f"{subjects.prefix}.lease.>"],
            "discard": "old",
            "max_msgs_per_subject": 1,
            "allow_msg_ttl": True,
            "allow_direct": False,
        },
    }


async def ensure_streams(
    connection: Connection,
    subjects: Subjects,
    *,
    replicas: int = 1,
    log_max_bytes: int = -1,
    events_max_age_seconds: int = EVENTS_MAX_AGE_SECONDS,
) -> None:
    """Create the streams that are missing. Raises `Invalid` for one that breaks a promise."""
    wanted = stream_configurations(
        subjects,
        replicas=replicas,
        log_max_bytes=log_max_bytes,
        events_max_age_seconds=events_max_age_seconds,
    )
    for purpose, config in wanted.items():
        existing = await _existing(connection, config["name"])
        if existing is None:
            if await _create(connection, config):
                continue
            existing = (await stream_info(connection, config["name"])).config
        _check(purpose, config, existing)


async def restore_lease_stream(connection: Connection, subjects: Subjects) -> None:
    """Create the stream of the lease again, after a server that forgot it was restarted."""
    await _create(connection, stream_configurations(subjects)["LEASE"])


async def _create(connection: Connection, config: dict[str, Any]) -> bool:
    """False when there is a stream of that name, with other settings."""
    try:
        await ask(connection, f"STREAM.CREATE.{config['name']}", config, StreamAnswer)
    except Refused as refused:
        if refused.err_code != STREAM_NAME_IN_USE:
            raise
        return False
    return True


async def _existing(connection: Connection, stream: str) -> dict[str, Any] | None:
    try:
        return (await stream_info(connection, stream)).config
    except Refused as refused:
        if refused.err_code == STREAM_NOT_FOUND:
            return None
        raise


def _check(purpose: str, wanted: dict[str, Any], existing: dict[str, Any]) -> None:
    wrong = [
        f"{setting} is {existing.get(setting, default)!r} and must be "
        f"{wanted.get(setting, default)!r}"
        for setting, default in _MATTERS.items()
        if setting not in _OPERATORS_CHOICE.get(purpose, set())
        and existing.get(setting, default) != wanted.get(setting, default)
    ]
    if wrong:
        raise Invalid(
            f"The stream {wanted['name']} exists with settings that cannot be trusted: "
            f"{'; '.join(wrong)}. Correct them, or choose another PENSTOCK_PREFIX.",
            stream=wanted["name"],
        )

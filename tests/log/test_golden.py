"""Events as earlier versions wrote them can be read, and still mean the same.

A file is never edited after a release. An event that changes gets another file beside the old one.
"""

import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from penstock.errors import Corrupt
from penstock.events import AnyEvent, decode
from penstock.events.commit import encode_event

GOLDEN = Path(__file__).parent.parent / "golden"
FILES = sorted(GOLDEN.glob("*.json"))


def _commit(event: bytes) -> bytes:
    return b'{"id":"c","counter":1,"previous":"","at":1,"events":[' + event + b"]}"


def _keeps(written: Any, stored: Any) -> bool:
    """Whether everything that was stored is still there. Newer fields may have been added."""
    if isinstance(stored, dict):
        return all(key in written and _keeps(written[key], stored[key]) for key in stored)
    if isinstance(stored, list):
        return len(written) >= len(stored) and all(map(_keeps, written, stored))
    return bool(written == stored)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_stored_event_is_read_and_written_with_the_same_meaning(file: Path) -> None:
    stored = file.read_bytes()
    [event] = decode(_commit(stored), 1).events
    assert event.__struct_config__.tag == file.name.partition(".")[0]
    written = encode_event(event)
    assert decode(_commit(written), 1).events == [event]
    assert _keeps(msgspec.json.decode(written), msgspec.json.decode(stored))


def test_every_kind_of_event_has_a_file() -> None:
    kinds = {str(kind.__struct_config__.tag) for kind in get_args(AnyEvent)}
    assert kinds == {file.name.partition(".")[0] for file in FILES}


def test_every_field_of_every_event_is_in_a_file() -> None:
    for kind in get_args(AnyEvent):
        tag = kind.__struct_config__.tag
        stored: set[str] = set()
        for file in FILES:
            if file.name.partition(".")[0] == tag:
                stored |= set(msgspec.json.decode(file.read_bytes()))
        missing = set(kind.__struct_encode_fields__) - stored
        assert not missing, f"{tag}: {missing}"


def test_an_unknown_kind_of_event_stops_the_reader() -> None:
    with pytest.raises(Corrupt):
        decode(_commit(b'{"type":"moon_landed","at":1,"actor":"x"}'), 1)


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("tasks_finished", "cpu_seconds", "null"),
        ("tasks_finished", "exit_code", str(10**12)),
        ("tasks_finished", "worker", "-1"),
        ("tasks_finished", "started_at", str(10**40)),
        ("task_group_created", "priority", str(10**30)),
        ("manager_registered", "worker_count", str(10**12)),
    ],
)
def test_a_number_that_no_column_holds_is_not_decoded(kind: str, field: str, value: str) -> None:
    text = (GOLDEN / f"{kind}.v1.json").read_text()
    spoilt, changes = re.subn(rf'("{field}": *)-?[0-9.]+', rf"\g<1>{value}", text, count=1)
    assert changes == 1
    msgspec.json.decode(text, type=AnyEvent)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(spoilt, type=AnyEvent)

"""`penstock replay`: folding a log that a scripted coordinator sends."""

from typing import Any

import msgspec
import pytest
from tests.cli.conftest import Penstock
from tests.client.scripted import Script, says, streams

from penstock.events import (
    SECOND,
    START,
    AnyEvent,
    Commit,
    GroupCreated,
    LeaderElected,
    SpecRun,
    TaskGroupCreated,
    TasksSubmitted,
    digest,
    encode,
)

EVENTS: list[AnyEvent] = [
    LeaderElected(at=1 * SECOND, actor="node", node="node"),
    GroupCreated(at=2 * SECOND, actor="node", group="default"),
    TaskGroupCreated(at=3 * SECOND, actor="ann", task_group_id=1, name="night", group="default"),
    TasksSubmitted(
        at=4 * SECOND,
        actor="ann",
        task_group_id=1,
        first=1,
        count=5,
        runs=[SpecRun(5, 0)],
        template=msgspec.Raw(b'{"command":["true"]}'),
    ),
]


def a_log() -> list[bytes]:
    """One commit for each event, chained."""
    lines = []
    previous = START.hash
    for number, event in enumerate(EVENTS, 1):
        commit = Commit(
            id=f"c{number}", counter=number, previous=previous, at=event.at, events=[event]
        )
        body = encode(commit)
        previous = digest(body)
        lines.append(
            b'{"sequence":%d,"hash":"%s","commit":%s}\n' % (number, previous.encode(), body)
        )
    return lines


def status(ready: int) -> dict[str, Any]:
    return {
        "leader": "node",
        "epoch": 1,
        "sequence": len(EVENTS),
        "read_model_sequence": len(EVENTS),
        "tasks": {"ready": ready},
        "task_groups": {"open": 1},
        "managers": {},
    }


def test_the_log_is_folded_to_its_end(penstock: Penstock, script: Script) -> None:
    script.add(says(status(5)), streams(*a_log()))
    result = penstock("replay", "-o", "json")
    state = msgspec.json.decode(result.stdout)
    assert (result.exit_code, state["sequence"], state["tasks"]["ready"]) == (0, 4, 5)
    assert state["task_groups"][0]["name"] == "night"


def test_the_state_is_shown_as_of_a_sequence(penstock: Penstock, script: Script) -> None:
    script.add(says(status(5)), streams(*a_log()[:3]))
    state = msgspec.json.decode(penstock("replay", "--to", "3", "-o", "json").stdout)
    assert (state["sequence"], state["tasks"]["ready"]) == (3, 0)
    assert script.received[1].target == "/log?from=1&to=3"


def test_the_state_is_shown_as_of_a_time(penstock: Penstock, script: Script) -> None:
    script.add(says(status(5)), streams(*a_log()))
    result = penstock("replay", "--at", "1970-01-01T00:00:02.5+00:00", "-o", "quiet")
    assert result.stdout == "2\n"


@pytest.mark.parametrize(("ready", "code"), [(5, 0), (4, 7)])
def test_verifying_compares_with_the_live_system(
    penstock: Penstock, script: Script, ready: int, code: int
) -> None:
    live = says(status(ready))
    script.add(live, streams(*a_log()), live, live)
    result = penstock("replay", "--verify")
    assert result.exit_code == code
    # The read model may be behind the log: it is asked for what was folded.
    assert {request.target for request in script.received[2:]} == {"/status?at_least=4"}
    assert ("differs: tasks" in result.stderr) == (code == 7)


def test_a_changed_commit_stops_the_replay(penstock: Penstock, script: Script) -> None:
    lines = a_log()
    script.add(says(status(5)), streams(*lines[:3], lines[3].replace(b'"count":5', b'"count":6')))
    result = penstock("replay")
    assert (result.exit_code, result.stdout) == (7, "")
    assert "sequence 4 was changed" in result.stderr


def test_a_log_that_breaks_off_is_not_taken_for_the_whole(
    penstock: Penstock, script: Script
) -> None:
    script.add(says(status(5)), streams(*a_log()[:2]))
    result = penstock("replay")
    assert (result.exit_code, result.stdout) == (5, "")
    assert "broke off at commit 2 of 4" in result.stderr


def trouble(code: str, **facts: Any) -> bytes:
    document = {"status": 500, "code": code, "detail": "This is why.", **facts}
    return msgspec.json.encode({"problem": document}) + b"\n"


def test_damage_that_the_coordinator_met_ends_the_replay_at_once(
    penstock: Penstock, script: Script
) -> None:
    script.add(says(status(5)), streams(*a_log()[:2], trouble("corrupt", sequence=3)))
    result = penstock("replay")
    assert (result.exit_code, result.stdout) == (7, "")
    assert "This is why." in result.stderr
    assert len(script.received) == 2


def test_a_replay_goes_on_where_the_coordinator_lost_the_log(
    penstock: Penstock, script: Script
) -> None:
    lines = a_log()
    script.add(says(status(5)), streams(*lines[:2], trouble("unavailable")), streams(*lines[2:]))
    assert penstock("replay", "-o", "quiet").stdout == "4\n"
    assert script.received[2].target == "/log?from=3&to=4"


def test_a_busy_system_is_compared_when_it_holds_still(penstock: Penstock, script: Script) -> None:
    behind = says({**status(0), "read_model_sequence": 3})
    live = says(status(5))
    script.add(live, streams(*a_log()), behind, live, live)
    assert penstock("replay", "--verify").exit_code == 0


def test_a_missing_commit_stops_the_replay(penstock: Penstock, script: Script) -> None:
    lines = a_log()
    script.add(says(status(5)), streams(lines[0], lines[2], lines[3]))
    result = penstock("replay")
    assert result.exit_code == 7
    assert "commits are missing" in result.stderr

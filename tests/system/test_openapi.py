"""Requests made up from the interface's own description: none may break it, or its description."""

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.system.conftest import Running

from penstock.coordinator.http.openapi import describe
from penstock.coordinator.http.operations import OPERATIONS

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
STREAMS = {"/log", "/task-groups/{id}/progress"}
FUZZED = [one for one in OPERATIONS if one.path not in STREAMS]


@pytest.mark.parametrize("one", FUZZED, ids=lambda one: f"{one.method} {one.path}")
def test_whatever_is_asked_is_answered_as_described(one: Any, running: Running) -> None:
    schema = schemathesis.openapi.from_dict(describe(OPERATIONS))
    headers = {"Authorization": f"Bearer {running.system.token}"}

    @settings(
        max_examples=60,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        database=None,
    )
    @given(case=schema[one.path][one.method].as_strategy())
    def ask(case: schemathesis.Case) -> None:
        if "wait" in (case.query or {}):
            case.query["wait"] = 0.01
        # To wait for a sequence that is not there yet ends in 503, after a while: as described,
        # but a waste of time.
        (case.query or {}).pop("at_least", None)
        response = case.call(base_url=running.system.url, headers=headers)
        case.validate_response(response, checks=CHECKS)

    ask()


def test_the_description_is_served(running: Running) -> None:
    served = schemathesis.openapi.from_url(f"{running.system.url}/openapi.json")
    assert served.raw_schema["paths"] == describe(OPERATIONS)["paths"]

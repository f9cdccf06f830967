"""Penstock runs campaigns of tasks on your own machines, on a durable log.

The names below are loaded when they are first used, so that a process that needs only a part of
the package does not pay for the rest.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock import errors
    from penstock.client import Client
    from penstock.events.spec import RetryPolicy, TaskSpec

__all__ = ["Client", "RetryPolicy", "TaskSpec", "errors"]

_HOMES = {
    "Client": "penstock.client",
    "RetryPolicy": "penstock.events.spec",
    "TaskSpec": "penstock.events.spec",
}


def __getattr__(name: str) -> object:
    if name == "errors":
        return importlib.import_module("penstock.errors")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")

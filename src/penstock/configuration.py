"""Configuration from the environment: one frozen Struct per process, read once, in its main.

A field `nats_url` is read from `PENSTOCK_NATS_URL`. A variable that no process knows is an error
that names it: a misspelt setting must not be ignored.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from penstock.errors import Invalid

PREFIX = "PENSTOCK_"

KNOWN = {
    "data": "directory for state, default ./penstock-data",
    "database_url": "address of Postgres, postgresql://...",
    "groups": "groups of a manager, separated by commas, default default",
    "heartbeat_seconds": "how often a manager says that it is alive",
    "labels": "labels of a manager, separated by commas",
    "listen": "HOST:PORT that the coordinator's HTTP listens on",
    "log_level": "debug, info, warning or error",
    "manager_id": "name of this manager, unique in the deployment",
    "nats_url": "address of NATS, nats://user:password@host:port",
    "node": "name of this coordinator, unique in the deployment",
    "prefix": "first part of every NATS subject, default penstock",
    "tags": "tags of a manager, separated by commas",
    "token": "token for the HTTP interface",
    "token_file": "file that holds the token",
    "url": "address of the coordinator's HTTP interface",
    "workers": "number of worker processes of a manager, default one per core",
}
"""Every setting there is, for the error message and the reference in the docs."""

_NOT_SETTINGS = tuple(PREFIX + name for name in ("TEST_", "TASK_", "ATTEMPT", "INDEX"))
"""What tests are told, and what a task is told about itself: it may run our commands too."""

T = TypeVar("T", bound=msgspec.Struct)


def refuse_unknown(environ: Mapping[str, str]) -> None:
    """Raise for a variable that looks like a setting and is none."""
    for variable in environ:
        if not variable.startswith(PREFIX) or variable.startswith(_NOT_SETTINGS):
            continue
        if variable.removeprefix(PREFIX).lower() not in KNOWN:
            known = ", ".join(PREFIX + name.upper() for name in KNOWN)
            raise Invalid(f"{variable} is not a setting of Penstock. There are: {known}.")


def load(kind: type[T], environ: Mapping[str, str]) -> T:
    """Build the configuration of one process from the environment."""
    refuse_unknown(environ)
    given = {
        variable.removeprefix(PREFIX).lower(): value
        for variable, value in environ.items()
        if variable.startswith(PREFIX)
    }
    wanted = {field.name: field for field in msgspec.structs.fields(kind)}
    missing = [
        PREFIX + name.upper()
        for name, field in wanted.items()
        if field.required and name not in given
    ]
    if missing:
        raise Invalid(f"Set {' and '.join(missing)} in the environment.")
    try:
        return msgspec.convert(
            {name: value for name, value in given.items() if name in wanted}, kind, strict=False
        )
    except msgspec.ValidationError as error:
        raise Invalid(f"The environment is not valid: {error}.") from error

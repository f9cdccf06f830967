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
    "heartbeat_seconds": "how often a manager says that it is alive",
    "listen": "HOST:PORT that the coordinator's HTTP listens on",
    "log_level": "debug, info, warning or error",
    "manager_id": "name of this manager, unique in the deployment",
    "nats_url": "address of NATS, nats://user:password@host:port",
    "node": "name of this coordinator, unique in the deployment",
    "prefix": "first part of every NATS subject, default penstock",
    "token": "token for the HTTP interface",
    "token_file": "file that holds the token",
    "url": "address of the coordinator's HTTP interface",
    "workers": "number of worker processes of a manager, default one per core",
}
"""Every setting there is, for the error message and the reference in the docs."""

T = TypeVar("T", bound=msgspec.Struct)


def load(kind: type[T], environ: Mapping[str, str]) -> T:
    """Build the configuration of one process from the environment."""
    given = {}
    for variable, value in environ.items():
        if not variable.startswith(PREFIX):
            continue
        field = variable.removeprefix(PREFIX).lower()
        if field not in KNOWN:
            known = ", ".join(PREFIX + name.upper() for name in KNOWN)
            raise Invalid(f"{variable} is not a setting of Penstock. There are: {known}.")
        given[field] = value
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

"""Configuration from the environment: one frozen Struct per process, read once, in its main.

A field `nats_url` is read from `PENSTOCK_NATS_URL`. A variable that no process knows is an error
that names it: a misspelt setting must not be ignored.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from penstock.errors import Invalid

PREFIX = "PENSTOCK_"

DEFAULT_DATA = "penstock-data"
DEFAULT_LISTEN = "127.0.0.1:8470"

KNOWN = {
    "data": f"directory for state, default ./{DEFAULT_DATA}",
    "database_url": "address of Postgres, postgresql://...",
    "groups": "groups of a manager, separated by commas, default default",
    "heartbeat_seconds": "how often a manager says that it is alive",
    "labels": "labels of a manager, separated by commas",
    "listen": f"HOST:PORT that the coordinator's HTTP listens on, default {DEFAULT_LISTEN}",
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


def read_token(token: str, token_file: str | Path) -> str:
    """The token, else the one that the file holds; what is empty was not set."""
    if token:
        return token
    if not token_file:
        raise Invalid("Set PENSTOCK_TOKEN or PENSTOCK_TOKEN_FILE in the environment.")
    try:
        token = Path(token_file).read_text().strip()
    except OSError as error:
        raise Invalid(
            f"The token file {token_file} cannot be read: {error.strerror}. "
            "Name another with --token-file or PENSTOCK_TOKEN_FILE."
        ) from error
    except UnicodeDecodeError as error:
        raise Invalid(f"The token file {token_file} does not hold text.") from error
    if not token:
        raise Invalid(f"The token file {token_file} is empty.")
    return token

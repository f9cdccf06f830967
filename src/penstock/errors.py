"""Every error that Penstock raises on purpose, by what the caller does next.

    PenstockError
    ├── Invalid          fix the request
    │   ├── Unsupported      the field exists, but nothing acts on it yet
    │   └── TooLarge         send less at once
    ├── Unauthenticated  send a token
    ├── Forbidden        ask for permission
    ├── NotFound         check the id
    ├── Rejected         the request does not fit the state that things are in
    ├── Conflict         someone was first: reload, then decide again
    │   └── Deposed          another coordinator leads now
    ├── Unavailable      try again later
    │   ├── NotLeader        ask the leader
    │   └── LogFull          make room on the log's disk
    └── Corrupt          stop and call a human

The docstring of a class is its default message. Facts about the case are attributes and travel to
the user next to the message.
"""

from typing import Any


class PenstockError(Exception):
    """Something went wrong."""

    code = "error"

    def __init__(self, message: str = "", **facts: Any) -> None:
        super().__init__(message or (self.__doc__ or "").strip())
        self.facts = facts

    @property
    def message(self) -> str:
        return str(self.args[0])


class Invalid(PenstockError):
    """The request is not valid. Fix it and send it again."""

    code = "invalid"


class Unsupported(Invalid):
    """This version does not act on that field. Leave it out."""

    code = "unsupported"


class TooLarge(Invalid):
    """The request is too large. Send less at once."""

    code = "too_large"


class Unauthenticated(PenstockError):
    """The request carries no valid token. Send it as 'Authorization: Bearer TOKEN'."""

    code = "unauthenticated"


class Forbidden(PenstockError):
    """The token does not permit this."""

    code = "forbidden"


class NotFound(PenstockError):
    """There is nothing with that id."""

    code = "not_found"


class Rejected(PenstockError):
    """The request does not fit the present state."""

    code = "rejected"


class Conflict(PenstockError):
    """Someone was first. Reload and decide again."""

    code = "conflict"


class Deposed(Conflict):
    """Another coordinator leads now. What was not acknowledged was not done."""

    code = "deposed"


class Unavailable(PenstockError):
    """The service cannot do this now. Try again in a moment."""

    code = "unavailable"


class NotLeader(Unavailable):
    """This coordinator does not lead. Ask the leader."""

    code = "not_leader"


class LogFull(Unavailable):
    """The log's storage is full. Nothing was lost; make room, then try again."""

    code = "log_full"


class Corrupt(PenstockError):
    """The log does not fit together. Stop, keep the files, and find out what changed them."""

    code = "corrupt"

"""Exit codes: what scripts, and our own processes among themselves, can rely on.

`penstock --help` shows them.
"""

from penstock import errors

OK = 0
FAILED = 1
INVALID = 2
NOT_FOUND = 3
REJECTED = 4
UNAVAILABLE = 5
FORBIDDEN = 6
CORRUPT = 7
OTHER = 8
INTERRUPTED = 130

MEANINGS = {
    OK: "done",
    FAILED: "a task that was waited for failed or was cancelled",
    INVALID: "wrong usage, or a request that is not valid",
    NOT_FOUND: "there is nothing with that id or name",
    REJECTED: "does not fit the present state, or someone else was first",
    UNAVAILABLE: "no coordinator answers, or it cannot do this now",
    FORBIDDEN: "no valid token, or one that does not permit this",
    CORRUPT: "the log is damaged, or a state or read model differs from it",
    OTHER: "any other error",
    INTERRUPTED: "interrupted with Ctrl-C",
}

_FAMILIES: list[tuple[type[errors.PenstockError], int]] = [
    (errors.Invalid, INVALID),
    (errors.NotFound, NOT_FOUND),
    (errors.Conflict, REJECTED),
    (errors.Rejected, REJECTED),
    (errors.Unavailable, UNAVAILABLE),
    (errors.Unauthenticated, FORBIDDEN),
    (errors.Forbidden, FORBIDDEN),
    (errors.Corrupt, CORRUPT),
]


def exit_code(error: errors.PenstockError) -> int:
    for family, code in _FAMILIES:
        if isinstance(error, family):
            return code
    return OTHER


def family_of(code: int) -> type[errors.PenstockError] | None:
    """The errors that a process of ours ends with this code for; None for any other end."""
    return next((family for family, its in _FAMILIES if its == code), None)

"""What every event carries.

Times are whole microseconds since 1970 (UTC): exact, cheap to compare and the same in every part.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

# What comes from elsewhere is bounded where it is decoded: a number that the database cannot hold,
# or that JSON cannot write, must not get into the log.
Timestamp = Annotated[int, Meta(ge=0, lt=2**62)]
TaskId = Annotated[int, Meta(ge=0, lt=2**62)]
TaskGroupId = Annotated[int, Meta(ge=0, lt=2**62)]
ManagerId = str
Small = Annotated[int, Meta(ge=0, lt=2**31)]

SECOND = 1_000_000


class Event(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    tag_field="type",
):
    """Something that happened: `actor` did it, for `reason`, because of the request `cause`."""

    at: Timestamp
    actor: str
    reason: str = ""
    cause: str = ""

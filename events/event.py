"""What every event carries.

Times are whole microseconds since 1970 (UTC): exact, cheap to compare and the same in every part.
"""

import msgspec

Timestamp = int
TaskId = int
TaskGroupId = int
ManagerId = str

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

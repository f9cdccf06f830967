"""What is folded from the log: the state in memory, and the read models in Postgres."""

from penstock.projections.evolve import advance, apply, evolve
from penstock.projections.ranges import find_range, has_ended, range_of
from penstock.projections.state import (
    FOLD_VERSION,
    Cancelled,
    Closed,
    Complete,
    LiveTask,
    Manager,
    Offline,
    Online,
    Open,
    Range,
    State,
    TaskGroup,
    decode_state,
    encode_state,
)

__all__ = [
    "FOLD_VERSION",
    "Cancelled",
    "Closed",
    "Complete",
    "LiveTask",
    "Manager",
    "Offline",
    "Online",
    "Open",
    "Range",
    "State",
    "TaskGroup",
    "advance",
    "apply",
    "decode_state",
    "encode_state",
    "evolve",
    "find_range",
    "has_ended",
    "range_of",
]

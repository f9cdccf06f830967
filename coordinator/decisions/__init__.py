"""All decisions: pure functions of a command, the state and the time."""

from penstock.coordinator.decisions.decide import decide
from penstock.coordinator.decisions.decision import Decision
from penstock.coordinator.decisions.schedule import next_due, schedule

__all__ = ["Decision", "decide", "next_due", "schedule"]

"""All decisions: pure functions of commands, the state and the time."""

from penstock.coordinator.decisions.decide import decide
from penstock.coordinator.decisions.decision import Decision
from penstock.coordinator.decisions.round import Round, decide_round
from penstock.coordinator.decisions.schedule import next_due, schedule

__all__ = ["Decision", "Round", "decide", "decide_round", "next_due", "schedule"]

"""The tables of the read models. They name no schema: the search path of a connection does.

What is queued costs a row per submission, what is in flight a row per batch of assigned tasks, and
what ended a row per task:

- `task_ranges`: what was submitted; the first `taken` tasks of a range have left it.
- `assignments`: tasks that an executor holds and that have no row of their own; `remaining` of the
  `count` have none yet, and the row goes with the last of them.
- `active_tasks`: tasks that were reported as started, or wait for another attempt.
- `archived_tasks`: tasks that ended. Where a task has a row here, no other table counts.

Revisions in `penstock.migrations` create the same tables; a test holds the two together.
"""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, TIMESTAMP

VERSION = 1
"""Raise it whenever the same log would be folded to other rows: a new read model is then built."""

SCHEMA = "penstock"
"""The schema of the read model in use."""

metadata = MetaData()

_TIME = TIMESTAMP(timezone=True)
_TEXTS = ARRAY(Text())


def _key(name: str) -> Column[int]:
    return Column(name, BigInteger, primary_key=True, autoincrement=False)


def _counter(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default="0")


position = Table(
    "position",
    metadata,
    Column("single", Boolean, CheckConstraint("single"), primary_key=True),
    Column("version", Integer, nullable=False),
    Column("build", Text, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("counter", BigInteger, nullable=False),
    Column("hash", Text, nullable=False),
    Column("updated_at", _TIME, nullable=False),
)

task_groups = Table(
    "task_groups",
    metadata,
    _key("id"),
    Column("name", Text, nullable=False),
    Column("group_name", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("result", Text),
    Column("priority", BigInteger, nullable=False),
    Column("tags", _TEXTS, nullable=False),
    Column("labels", _TEXTS, nullable=False),
    Column("max_managers", BigInteger),
    Column("task_prefetch_count", BigInteger),
    Column("created_at", _TIME, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("closed_at", _TIME),
    Column("completed_at", _TIME),
    Column("cancelled_at", _TIME),
    Column("first_started_at", _TIME),
    Column("last_finished_at", _TIME),
    _counter("total"),
    _counter("waiting"),
    _counter("ready"),
    _counter("assigned"),
    _counter("running"),
    _counter("succeeded"),
    _counter("failed"),
    _counter("cancelled"),
    # How many tasks ended in the newest window of time that saw any, and in the one before it.
    _counter("rate_window"),
    _counter("rate_current"),
    _counter("rate_previous"),
    Index("task_groups_by_name", "group_name", "name"),
    Index("task_groups_by_state", "state", "id"),
)

managers = Table(
    "managers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("groups", _TEXTS, nullable=False),
    Column("tags", _TEXTS, nullable=False),
    Column("labels", _TEXTS, nullable=False),
    Column("worker_count", BigInteger, nullable=False),
    Column("device", JSON, nullable=False),
    Column("online", Boolean, nullable=False, server_default="false"),
    Column("task_group_id", BigInteger),
    Column("registered_at", _TIME, nullable=False),
    Column("online_at", _TIME),
    Column("offline_at", _TIME),
)

task_group_managers = Table(
    "task_group_managers",
    metadata,
    _key("task_group_id"),
    Column("manager_id", Text, primary_key=True),
)

task_ranges = Table(
    "task_ranges",
    metadata,
    _key("first"),
    Column("count", BigInteger, nullable=False),
    Column("taken", BigInteger, nullable=False),
    Column("task_group_id", BigInteger, nullable=False),
    Column("priority", Integer, nullable=False),
    # Where the specs are: event `event_index` of the commit at `sequence`.
    Column("sequence", BigInteger, nullable=False),
    Column("event_index", Integer, nullable=False),
    Column("submitted_at", _TIME, nullable=False),
    # When this is set, the tasks behind `taken` were cancelled then.
    Column("rest_cancelled_at", _TIME),
    Column("rest_cancel_reason", Text),
    Index("task_ranges_by_task_group", "task_group_id", "first"),
)

assignments = Table(
    "assignments",
    metadata,
    _key("first"),
    Column("count", BigInteger, nullable=False),
    Column("remaining", BigInteger, nullable=False),
    Column("task_group_id", BigInteger, nullable=False),
    Column("manager_id", Text, nullable=False),
)

active_tasks = Table(
    "active_tasks",
    metadata,
    _key("id"),
    Column("task_group_id", BigInteger, nullable=False),
    Column("state", SmallInteger, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("manager_id", Text),
    Column("started_at", _TIME),
    Column("worker", Integer),
    Column("not_before", _TIME),
    Column("cancel_requested", Boolean, nullable=False),
    Index("active_tasks_by_task_group", "task_group_id", "id"),
)

attempts = Table(
    "attempts",
    metadata,
    _key("task_id"),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("started_at", _TIME),
    Column("ended_at", _TIME, nullable=False),
    Column("counts", Boolean, nullable=False),
    Column("worker", Integer),
    Column("exit_code", Integer),
    Column("signal", Integer),
    Column("output_truncated", Boolean, nullable=False),
    Column("manager_id", Text),
    Column("cause", Text),
    Column("message", Text),
    Column("stdout", Text),
    Column("stderr", Text),
)

archived_tasks = Table(
    "archived_tasks",
    metadata,
    Column("id", BigInteger, nullable=False),
    Column("task_group_id", BigInteger, nullable=False),
    Column("started_at", _TIME),
    Column("ended_at", _TIME, nullable=False),
    Column("max_rss_bytes", BigInteger),
    Column("cpu_seconds", Double),
    Column("attempt", Integer, nullable=False),
    Column("state", SmallInteger, nullable=False),
    Column("worker", Integer),
    Column("exit_code", Integer),
    Column("signal", Integer),
    Column("output_truncated", Boolean, nullable=False),
    Column("manager_id", Text),
    Column("cause", Text),
    Column("message", Text),
    Column("stdout", Text),
    Column("stderr", Text),
    Column("result", JSON),
    # Each row is in exactly one of the two. The first finds a task that succeeded by its id; the
    # second finds the others, by the group that their range names.
    Index("archived_tasks_succeeded", "id", postgresql_where=text("state = 4")),
    Index(
        "archived_tasks_not_succeeded",
        "task_group_id",
        "state",
        "id",
        postgresql_where=text("state > 4"),
    ),
    postgresql_partition_by="RANGE (ended_at)",
)

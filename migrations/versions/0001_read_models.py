"""The first read models."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, TIMESTAMP

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TIME = TIMESTAMP(timezone=True)
TEXTS = ARRAY(sa.Text())
COUNTERS = (
    "total",
    "waiting",
    "ready",
    "assigned",
    "running",
    "succeeded",
    "failed",
    "cancelled",
    "rate_window",
    "rate_current",
    "rate_previous",
)


def upgrade() -> None:
    _position()
    _task_groups()
    _managers()
    _tasks()
    _ended_tasks()


def _position() -> None:
    op.create_table(
        "position",
        sa.Column("single", sa.Boolean, sa.CheckConstraint("single"), primary_key=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("build", sa.Text, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("counter", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        postgresql_with={"fillfactor": "10"},
    )


def _task_groups() -> None:
    op.create_table(
        "task_groups",
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("group_name", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("result", sa.Text),
        sa.Column("priority", sa.BigInteger, nullable=False),
        sa.Column("tags", TEXTS, nullable=False),
        sa.Column("labels", TEXTS, nullable=False),
        sa.Column("max_managers", sa.BigInteger),
        sa.Column("task_prefetch_count", sa.BigInteger),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("closed_at", TIME),
        sa.Column("completed_at", TIME),
        sa.Column("cancelled_at", TIME),
        sa.Column("first_started_at", TIME),
        sa.Column("last_finished_at", TIME),
        *(sa.Column(name, sa.BigInteger, nullable=False, server_default="0") for name in COUNTERS),
        # The counters change with every batch; room in the page keeps the indexes out of it.
        postgresql_with={"fillfactor": "30"},
    )
    op.create_index("task_groups_by_name", "task_groups", ["group_name", "name"])
    op.create_index("task_groups_by_state", "task_groups", ["state", "id"])


def _managers() -> None:
    op.create_table(
        "managers",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("groups", TEXTS, nullable=False),
        sa.Column("tags", TEXTS, nullable=False),
        sa.Column("labels", TEXTS, nullable=False),
        sa.Column("worker_count", sa.BigInteger, nullable=False),
        sa.Column("device", sa.JSON, nullable=False),
        sa.Column("online", sa.Boolean, nullable=False, server_default="false"),
        sa.Column("task_group_id", sa.BigInteger),
        sa.Column("registered_at", TIME, nullable=False),
        sa.Column("online_at", TIME),
        sa.Column("offline_at", TIME),
    )
    op.create_table(
        "task_group_managers",
        sa.Column("task_group_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("manager_id", sa.Text, primary_key=True),
    )


def _tasks() -> None:
    op.create_table(
        "task_ranges",
        sa.Column("first", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("count", sa.BigInteger, nullable=False),
        sa.Column("taken", sa.BigInteger, nullable=False),
        sa.Column("task_group_id", sa.BigInteger, nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("event_index", sa.Integer, nullable=False),
        sa.Column("submitted_at", TIME, nullable=False),
        sa.Column("rest_cancelled_at", TIME),
        sa.Column("rest_cancel_reason", sa.Text),
        postgresql_with={"fillfactor": "80"},
    )
    op.create_index("task_ranges_by_task_group", "task_ranges", ["task_group_id", "first"])
    op.create_table(
        "assignments",
        sa.Column("first", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("count", sa.BigInteger, nullable=False),
        sa.Column("remaining", sa.BigInteger, nullable=False),
        sa.Column("task_group_id", sa.BigInteger, nullable=False),
        sa.Column("manager_id", sa.Text, nullable=False),
        postgresql_with={"fillfactor": "70"},
    )
    op.create_table(
        "active_tasks",
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("task_group_id", sa.BigInteger, nullable=False),
        sa.Column("state", sa.SmallInteger, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("manager_id", sa.Text),
        sa.Column("started_at", TIME),
        sa.Column("worker", sa.Integer),
        sa.Column("not_before", TIME),
        sa.Column("cancel_requested", sa.Boolean, nullable=False),
        postgresql_with={"fillfactor": "70"},
    )
    op.create_index("active_tasks_by_task_group", "active_tasks", ["task_group_id", "id"])


def _ending() -> list[sa.Column[Any]]:
    """How an attempt or a task ended."""
    return [
        sa.Column("worker", sa.Integer),
        sa.Column("exit_code", sa.Integer),
        sa.Column("signal", sa.Integer),
        sa.Column("output_truncated", sa.Boolean, nullable=False),
        sa.Column("manager_id", sa.Text),
        sa.Column("cause", sa.Text),
        sa.Column("message", sa.Text),
        sa.Column("stdout", sa.Text),
        sa.Column("stderr", sa.Text),
    ]


def _ended_tasks() -> None:
    op.create_table(
        "attempts",
        sa.Column("task_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("started_at", TIME),
        sa.Column("ended_at", TIME, nullable=False),
        sa.Column("counts", sa.Boolean, nullable=False),
        *_ending(),
    )
    op.create_table(
        "archived_tasks",
        sa.Column("id", sa.BigInteger, nullable=False),
        sa.Column("task_group_id", sa.BigInteger, nullable=False),
        sa.Column("started_at", TIME),
        sa.Column("ended_at", TIME, nullable=False),
        sa.Column("max_rss_bytes", sa.BigInteger),
        sa.Column("cpu_seconds", sa.Double),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("state", sa.SmallInteger, nullable=False),
        *_ending(),
        sa.Column("result", sa.JSON),
        postgresql_partition_by="RANGE (ended_at)",
    )
    # Each row is in exactly one of the two. The first finds a task that succeeded by its id; the
    # second finds the others, by the group that its range names.
    op.create_index(
        "archived_tasks_succeeded", "archived_tasks", ["id"], postgresql_where=sa.text("state = 4")
    )
    op.create_index(
        "archived_tasks_not_succeeded",
        "archived_tasks",
        ["task_group_id", "state", "id"],
        postgresql_where=sa.text("state > 4"),
    )

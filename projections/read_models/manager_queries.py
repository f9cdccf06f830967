"""Finding managers."""

from typing import Any

import asyncpg
import msgspec

from penstock.projections.read_models.views import ManagerView

BY_ID = "SELECT * FROM managers WHERE id = $1"
ALL = "SELECT * FROM managers ORDER BY id"

STATES = """
SELECT CASE WHEN NOT online THEN 'offline' WHEN task_group_id IS NULL THEN 'idle'
    ELSE 'executing' END AS state, count(*)
FROM managers GROUP BY 1
"""


def manager_view(row: asyncpg.Record) -> ManagerView:
    state = "executing" if row["task_group_id"] is not None else "idle"
    values: dict[str, Any] = {
        name: row[name] for name in ManagerView.__struct_fields__ if name not in ("state", "device")
    }
    return ManagerView(
        **values,
        state=state if row["online"] else "offline",
        device=msgspec.Raw(row["device"].encode()),
    )

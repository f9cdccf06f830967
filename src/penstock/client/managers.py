"""Calls about managers."""

from collections.abc import AsyncIterator, Sequence

from penstock.client.calls import Calls, given, segment
from penstock.client.models import Manager, RegisteredManager
from penstock.events.managers import Device


class ManagerCalls(Calls):
    def managers(
        self, *, state: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Manager]:
        return self._pages("/managers", Manager, given(state=state), limit)

    async def manager(self, manager_id: str) -> Manager:
        return await self._get(f"/managers/{segment(manager_id)}", Manager)

    async def register_manager(
        self,
        *,
        worker_count: int,
        manager_id: str | None = None,
        groups: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
        labels: Sequence[str] | None = None,
        device: Device | None = None,
    ) -> str:
        """Make a manager known, or known again with other properties. Returns its id."""
        document = {
            "manager_id": manager_id,
            "groups": groups,
            "tags": tags,
            "labels": labels,
            "worker_count": worker_count,
            "device": device,
        }
        present = {field: value for field, value in document.items() if value is not None}
        return (await self._send("POST", "/managers", present, RegisteredManager)).manager_id

"""Calls about managers."""

from collections.abc import AsyncIterator

from penstock.client.calls import Calls, segment
from penstock.client.models import Manager


class ManagerCalls(Calls):
    def managers(self) -> AsyncIterator[Manager]:
        return self._pages("/managers", Manager, {}, None)

    async def manager(self, manager_id: str) -> Manager:
        return await self._get(f"/managers/{segment(manager_id)}", Manager)

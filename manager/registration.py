"""How a manager makes itself known to the coordinator: once, over HTTP."""

import asyncio
import os
import platform
import socket
from typing import Any

import aiohttp
import msgspec
import structlog

from penstock.errors import Forbidden, Invalid, NotFound, Unauthenticated
from penstock.events.managers import Device

logger = structlog.get_logger("penstock.manager")

FIRST_DELAY_SECONDS = 0.05
LONGEST_DELAY_SECONDS = 2.0
TIMEOUT_SECONDS = 10.0


def this_device() -> Device:
    return Device(
        hostname=socket.gethostname(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        platform=platform.platform(),
    )


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    token: str
    manager_id: str
    worker_count: int
    device: Device
    groups: list[str]
    tags: list[str] = []
    labels: list[str] = []

    async def register(self) -> None:
        """Try until the coordinator has taken it. Raises when it never will."""
        delay = FIRST_DELAY_SECONDS
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                problem = await self._try(session)
                if not problem:
                    return
                logger.info("not_registered_yet", url=self.url, problem=problem)
                await asyncio.sleep(delay)
                delay = min(delay * 2, LONGEST_DELAY_SECONDS)

    async def _try(self, session: aiohttp.ClientSession) -> str:
        """Returns what was in the way, for now."""
        body: dict[str, Any] = {
            "manager_id": self.manager_id,
            "worker_count": self.worker_count,
            "device": msgspec.to_builtins(self.device),
            "groups": self.groups,
        }
        # What this manager was not told, it does not know better than whoever set it elsewhere.
        if self.tags:
            body["tags"] = self.tags
        if self.labels:
            body["labels"] = self.labels
        try:
            async with session.post(
                f"{self.url.rstrip('/')}/managers",
                json=body,
                headers={"Authorization": f"Bearer {self.token}"},
            ) as response:
                text = await response.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            return f"{type(error).__name__}: {error}"
        if response.status < 300:
            return ""
        if response.status == 401:
            raise Unauthenticated(
                "The coordinator does not know this token. "
                "Check PENSTOCK_TOKEN or PENSTOCK_TOKEN_FILE."
            )
        if response.status == 403:
            raise Forbidden(f"This token may not register a manager: {text[:500]}")
        if response.status in (400, 422) or _names_nothing(response.status, text):
            raise Invalid(f"The coordinator refuses this manager: {text[:500]}")
        return f"status {response.status}: {text[:200]}"


def _names_nothing(status: int, text: str) -> bool:
    """Whether the coordinator says that a group does not exist. A 404 of a proxy may pass."""
    if status != 404:
        return False
    try:
        return msgspec.json.decode(text, type=_Problem).code == NotFound.code
    except msgspec.DecodeError:
        return False


class _Problem(msgspec.Struct, frozen=True):
    code: str = ""

"""What all calls share: how values become requests and answers become values."""

import urllib.parse
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeVar

import msgspec

from penstock.client.connection import Connection, Request
from penstock.errors import PenstockError

T = TypeVar("T")

JSON = {"Content-Type": "application/json"}


class Page(msgspec.Struct, frozen=True):
    """One page of a listing."""

    items: msgspec.Raw
    next: str | int | None = None


def new_key() -> str:
    """An idempotency key that nobody else has."""
    return uuid.uuid4().hex


def segment(name: int | str) -> str:
    """An id or a name as part of a path."""
    return urllib.parse.quote(str(name), safe="")


def given(**parameters: object) -> dict[str, str]:
    """Query parameters, without those that were left out."""
    return {name: str(value) for name, value in parameters.items() if value is not None}


class Calls:
    """Calls over one connection. Reads see at least what this client wrote before."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def _fresh(self, parameters: Mapping[str, str]) -> dict[str, str]:
        last = self._connection.last_write
        return {"at_least": str(last), **parameters} if last else dict(parameters)

    async def _get(
        self,
        path: str,
        kind: type[T],
        parameters: Mapping[str, str] = {},
        *,
        wait_seconds: float = 0.0,
    ) -> T:
        reply = await self._connection.request(
            Request(
                method="GET",
                path=path,
                parameters=self._fresh(parameters),
                repeatable=True,
                wait_seconds=wait_seconds,
            )
        )
        return decode(reply.body, kind)

    async def _send(
        self, method: str, path: str, document: Any, kind: type[T], key: str | None = None
    ) -> T:
        reply = await self._connection.request(
            Request(
                method=method,
                path=path,
                body=msgspec.json.encode(document),
                headers=JSON if key is None else {**JSON, "Idempotency-Key": key},
                repeatable=key is not None,
            )
        )
        return decode(reply.body, kind)

    async def _pages(
        self,
        path: str,
        kind: type[T],
        parameters: Mapping[str, str],
        limit: int | None,
        cursor: str | int | None = None,
    ) -> AsyncIterator[T]:
        """All items of a listing after a cursor, page by page, up to `limit`."""
        left = limit
        while left is None or left > 0:
            size = 500 if left is None else min(500, left)
            page = await self._get(path, Page, {**parameters, **given(cursor=cursor, limit=size)})
            items = decode(bytes(page.items), list[kind])  # type: ignore[valid-type]
            for item in items:
                yield item
            if page.next is None:
                return
            cursor = page.next
            if left is not None:
                left -= len(items)


def decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise PenstockError(
            f"The coordinator's answer cannot be read: {error}. "
            "Check that client and coordinator are of the same version."
        ) from error

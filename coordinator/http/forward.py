"""A coordinator that does not lead passes writes on to the one that does."""

from collections.abc import AsyncIterator

import aiohttp
from starlette.requests import Request
from starlette.responses import Response

from penstock.coordinator.node import Node
from penstock.errors import NotLeader, Unavailable

FORWARDED = "penstock-forwarded"
CONNECT_SECONDS = 5.0
LONGEST_SECONDS = 330.0
"""A little more than the longest wait that a request may ask for."""
_PASSED_ON = ("authorization", "content-type", "idempotency-key", "x-request-id", "accept")
_PASSED_BACK = ("content-type", "penstock-sequence", "retry-after")


class Forwarder:
    def __init__(self, node: Node, session: aiohttp.ClientSession) -> None:
        self._node = node
        self._session = session

    async def forward(self, request: Request) -> Response:
        """Send the request to the leader, and its answer back."""
        leader_url = self._node.state.leader_url
        if FORWARDED in request.headers or not leader_url or leader_url == self._node.url:
            raise NotLeader
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        headers[FORWARDED] = self._node.name
        url = leader_url.rstrip("/") + request.url.path
        try:
            async with self._session.request(
                request.method,
                url,
                params=list(request.query_params.multi_items()),
                data=_body(request),
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=LONGEST_SECONDS, sock_connect=CONNECT_SECONDS),
            ) as response:
                return Response(
                    await response.read(),
                    status_code=response.status,
                    headers={
                        name: response.headers[name]
                        for name in _PASSED_BACK
                        if name in response.headers
                    },
                )
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unavailable(
                f"The leader at {leader_url} does not answer. Try again in a moment."
            ) from error


async def _body(request: Request) -> AsyncIterator[bytes]:
    async for part in request.stream():
        if part:
            yield part

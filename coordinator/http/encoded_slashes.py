"""Lets one segment of a path hold a slash: `/task-groups/default%2Fnight/progress`.

A task group may be named as `group/name`. Servers decode the path before it is routed, and then an
encoded slash looks like any other. Here it stays encoded until a route has matched; `segment` then
gives what was meant.
"""

import urllib.parse

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send


class EncodedSlashes:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes = scope.get("raw_path") or b""
        if b"%2f" in raw.lower():
            kept = raw.replace(b"%2F", b"%252F").replace(b"%2f", b"%252F")
            scope["path"] = urllib.parse.unquote(kept.decode("ascii"))
        await self._app(scope, receive, send)


def segment(request: Request, name: str) -> str:
    """A part of the path, with its slashes."""
    text: str = request.path_params[name]
    return text.replace("%2F", "/")

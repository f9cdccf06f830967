"""The HTTP interface as an application."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.coordinator.http.encoded_slashes import EncodedSlashes
from penstock.coordinator.http.endpoint import Services, answer
from penstock.coordinator.http.openapi import describe
from penstock.coordinator.http.operations import OPERATIONS
from penstock.coordinator.http.problems import plain


def build_app(services: Services) -> Starlette:
    app = Starlette(
        routes=[
            *(Route(one.path, one.handler, methods=[one.method]) for one in OPERATIONS),
            Route("/openapi.json", _openapi),
        ],
        middleware=[Middleware(EncodedSlashes)],
        exception_handlers={HTTPException: _refused},
    )
    app.state.services = services
    return app


async def _openapi(request: Request) -> Response:
    return answer(describe(OPERATIONS))


async def _refused(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    if error.status_code == 404:
        return plain(404, f"There is nothing at {request.url.path}.")
    if error.status_code == 405:
        return plain(405, f"{request.method} is not possible at {request.url.path}.")
    return plain(error.status_code, error.detail)

"""The HTTP interface: all routes in one place."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.coordinator.http import managers, system, task_groups, tasks
from penstock.coordinator.http.encoded_slashes import EncodedSlashes
from penstock.coordinator.http.endpoint import Services
from penstock.coordinator.http.problems import plain

ROUTES = [
    Route("/health", system.health),
    Route("/ready", system.ready),
    Route("/status", system.status),
    Route("/log", system.log),
    Route("/tasks", tasks.submit, methods=["POST"]),
    Route("/tasks", tasks.index),
    Route("/tasks/{id}", tasks.show),
    Route("/tasks/{id}/output", tasks.output),
    Route("/tasks/{id}/cancel", tasks.cancel, methods=["POST"]),
    Route("/task-groups", task_groups.create, methods=["POST"]),
    Route("/task-groups", task_groups.index),
    Route("/task-groups/{id}", task_groups.show),
    Route("/task-groups/{id}/progress", task_groups.progress),
    Route("/task-groups/{id}/close", task_groups.close, methods=["POST"]),
    Route("/task-groups/{id}/reopen", task_groups.reopen, methods=["PUT"]),
    Route("/task-groups/{id}/cancel", task_groups.cancel, methods=["POST"]),
    Route("/managers", managers.register, methods=["POST"]),
    Route("/managers", managers.index),
    Route("/managers/{id}", managers.show),
]


def build_app(services: Services) -> Starlette:
    app = Starlette(
        routes=ROUTES,
        middleware=[Middleware(EncodedSlashes)],
        exception_handlers={HTTPException: _refused},
    )
    app.state.services = services
    return app


async def _refused(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    if error.status_code == 404:
        return plain(404, f"There is nothing at {request.url.path}.")
    if error.status_code == 405:
        return plain(405, f"{request.method} is not possible at {request.url.path}.")
    return plain(error.status_code, error.detail)

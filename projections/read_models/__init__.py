"""The read models in Postgres: written by the projector, read by HTTP."""

from penstock.projections.read_models.projection import Projection, prepare
from penstock.projections.read_models.projector import Projector
from penstock.projections.read_models.queries import ReadModel
from penstock.projections.read_models.rebuild import rebuild, status, verify
from penstock.projections.read_models.views import (
    ManagerView,
    Page,
    ProgressView,
    TaskGroupView,
    TaskView,
)

__all__ = [
    "ManagerView",
    "Page",
    "ProgressView",
    "Projection",
    "Projector",
    "ReadModel",
    "TaskGroupView",
    "TaskView",
    "prepare",
    "rebuild",
    "status",
    "verify",
]

"""The read models in Postgres: written by the projector, read by HTTP."""

from penstock.projections.read_models.projection import Projection, prepare
from penstock.projections.read_models.projector import Projector
from penstock.projections.read_models.queries import ReadModel
from penstock.projections.read_models.rebuild import (
    Difference,
    Status,
    rebuild,
    status,
    verify,
)
from penstock.projections.read_models.states import TaskState
from penstock.projections.read_models.views import (
    AttemptView,
    Counts,
    ManagerView,
    Page,
    ProgressView,
    SpecPlace,
    StatusView,
    TaskGroupView,
    TaskView,
)

__all__ = [
    "AttemptView",
    "Counts",
    "Difference",
    "ManagerView",
    "Page",
    "ProgressView",
    "Projection",
    "Projector",
    "ReadModel",
    "SpecPlace",
    "Status",
    "StatusView",
    "TaskGroupView",
    "TaskState",
    "TaskView",
    "prepare",
    "rebuild",
    "status",
    "verify",
]

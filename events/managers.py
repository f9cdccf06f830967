"""Events of managers, and of the coordinators that lead them."""

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.events.event import Event, ManagerId, Small


class Device(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The machine that a manager runs on."""

    hostname: str = ""
    cores: Small = 0
    memory_bytes: Annotated[int, Meta(ge=0, lt=2**62)] = 0
    platform: str = ""


class LeaderElected(Event, frozen=True, kw_only=True, tag="leader_elected"):
    """A coordinator leads from here on. The sequence of this commit is its epoch."""

    node: str
    url: str = ""


class ManagerRegistered(Event, frozen=True, kw_only=True, tag="manager_registered"):
    """Also appended when a known manager comes back with other properties."""

    manager_id: ManagerId
    groups: list[str]
    tags: list[str] = []
    labels: list[str] = []
    worker_count: Small
    device: Device = Device()


class ManagerOnline(Event, frozen=True, kw_only=True, tag="manager_online"):
    """The manager synchronised. A new `incarnation` is a new process: what its predecessor held
    and it does not is lost."""

    manager_id: ManagerId
    incarnation: str


class ManagerOffline(Event, frozen=True, kw_only=True, tag="manager_offline"):
    manager_id: ManagerId

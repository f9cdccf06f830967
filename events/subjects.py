"""Every NATS name that Penstock uses: streams, subjects, headers. Nothing else spells them out."""

import re

import msgspec

from penstock.errors import Invalid

HEADER_EPOCH = "Penstock-Epoch"
HEADER_SCHEMA = "Penstock-Schema"
HEADER_HASH = "Penstock-Hash"
HEADER_SEQUENCE = "Penstock-Log-Sequence"
HEADER_INDEX = "Penstock-Log-Index"

_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,64}")


def token(name: str, what: str) -> str:
    """A name that becomes part of a subject: '*' or 'a.b' would widen what it stands for."""
    if not _TOKEN.fullmatch(name):
        raise Invalid(f"{what} {name!r} must consist of 1 to 64 letters, digits, '_' and '-'.")
    return name


class Subjects(msgspec.Struct, frozen=True):
    """The names of one deployment. Deployments with different prefixes can share a NATS."""

    prefix: str = "penstock"

    def __post_init__(self) -> None:
        token(self.prefix, "The prefix")

    def _stream(self, name: str) -> str:
        return name if self.prefix == "penstock" else f"{self.prefix}_{name}"

    @property
    def log_stream(self) -> str:
        return self._stream("LOG")

    @property
    def events_stream(self) -> str:
        return self._stream("EVENTS")

    @property
    def snapshots_stream(self) -> str:
        return self._stream("SNAPSHOTS")

    @property
    def lease_stream(self) -> str:
        return self._stream("LEASE")

    @property
    def log(self) -> str:
        return f"{self.prefix}.log.>"

    @property
    def log_leader(self) -> str:
        """Elections only: its last sequence is the epoch in force."""
        return f"{self.prefix}.log.leader"

    @property
    def log_commit(self) -> str:
        return f"{self.prefix}.log.commit"

    @property
    def events(self) -> str:
        return f"{self.prefix}.events.>"

    def event(self, entity: str, entity_id: str, tag: str) -> str:
        return f"{self.prefix}.events.{entity}.{entity_id}.{tag}"

    @property
    def snapshots(self) -> str:
        return f"{self.prefix}.snapshots.>"

    def snapshot_chunk(self, snapshot_id: str, index: int) -> str:
        return f"{self.prefix}.snapshots.chunk.{snapshot_id}.{index}"

    @property
    def snapshot_manifest(self) -> str:
        return f"{self.prefix}.snapshots.manifest"

    @property
    def lease(self) -> str:
        return f"{self.prefix}.lease.coordinator"

    def push(self, manager_id: str) -> str:
        return f"{self.prefix}.manager.{token(manager_id, 'The manager id')}.push"

    def report(self, manager_id: str) -> str:
        return f"{self.prefix}.report.{manager_id}"

    def sync(self, manager_id: str) -> str:
        return f"{self.prefix}.sync.{manager_id}"

    def heartbeat(self, manager_id: str) -> str:
        return f"{self.prefix}.heartbeat.{manager_id}"

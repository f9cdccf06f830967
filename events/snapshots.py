"""Snapshots: the state as of one position of the log, so that a start need not fold all of it.

A snapshot is cut into chunks, one message each, and becomes real with its manifest, which is
written last. Reading takes the newest manifest of the wanted fold version whose chunks are all
there and give the checksum; a damaged or partial snapshot is passed over for an older one. A
snapshot is only a cache: with none at all, the reader starts at the beginning of the log.

The last three are kept. Chunks that never got a manifest are removed after an hour.
"""

import asyncio
import hashlib
import uuid
from contextlib import suppress

import msgspec
import structlog

from penstock.errors import Corrupt, LogFull
from penstock.events.append import Unanswered, backoff
from penstock.events.commit import Position
from penstock.events.connection import Connection
from penstock.events.event import SECOND, Timestamp
from penstock.events.jetstream_api import (
    STORAGE_REFUSES,
    Answer,
    Problem,
    Refused,
    StoredMessage,
    ask,
    get_message,
    publish,
    stream_info,
)
from penstock.events.pull import Pull, PullBroken
from penstock.events.subjects import Subjects

logger = structlog.get_logger("penstock.snapshots")

CHUNK_BYTES = 512 * 1024
KEPT = 3
CHUNKS_IN_FLIGHT = 8
ORPHAN_AGE = 3600 * SECOND
TRIES = 5


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    sequence: int
    counter: int
    hash: str
    fold_version: int
    checksum: str
    chunks: int
    size: int
    at: Timestamp

    @property
    def position(self) -> Position:
        return Position(sequence=self.sequence, counter=self.counter, hash=self.hash)


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    manifest: Manifest
    body: bytes


class SnapshotStore:
    def __init__(self, connection: Connection, subjects: Subjects) -> None:
        self._connection = connection
        self._subjects = subjects
        self._stream = subjects.snapshots_stream

    async def write(
        self, body: bytes, position: Position, fold_version: int, at: Timestamp
    ) -> Manifest:
        """Store a snapshot, then remove old ones. Raises `LogFull` or `Unanswered`."""
        starts = range(0, len(body), CHUNK_BYTES)
        checksum = await asyncio.to_thread(_checksum, body)
        manifest = Manifest(
            id=f"{at}-{uuid.uuid4().hex[:8]}",
            sequence=position.sequence,
            counter=position.counter,
            hash=position.hash,
            fold_version=fold_version,
            checksum=checksum,
            chunks=len(starts),
            size=len(body),
            at=at,
        )
        room = asyncio.Semaphore(CHUNKS_IN_FLIGHT)

        async def put(index: int, start: int) -> None:
            async with room:
                await self._put(
                    self._subjects.snapshot_chunk(manifest.id, index),
                    body[start : start + CHUNK_BYTES],
                )

        results = await asyncio.gather(
            *(put(index, start) for index, start in enumerate(starts)), return_exceptions=True
        )
        failures = [result for result in results if isinstance(result, BaseException)]
        if failures:
            with suppress(Unanswered, Refused):
                await self._forget(manifest.id)
            raise failures[0]
        await self._put(self._subjects.snapshot_manifest, msgspec.json.encode(manifest))
        await self._tidy(at)
        return manifest

    async def newest(self, fold_version: int) -> Snapshot | None:
        """The newest whole snapshot of a fold version. Raises `Unanswered`."""
        manifests = [m for m in await self.manifests() if m.fold_version == fold_version]
        for manifest in sorted(manifests, key=lambda m: m.sequence, reverse=True):
            try:
                return Snapshot(manifest=manifest, body=await self._read(manifest))
            except Corrupt as corrupt:
                logger.warning(
                    "a damaged snapshot is passed over", id=manifest.id, why=corrupt.message
                )
        return None

    async def manifests(self) -> list[Manifest]:
        """Those that can be read, in the order in which they were written."""
        found: list[Manifest] = []
        sequence = 1
        while (stored := await self._next_manifest(sequence)) is not None:
            sequence = stored.seq + 1
            try:
                found.append(msgspec.json.decode(stored.data, type=Manifest))
            except msgspec.DecodeError as error:
                logger.warning("a damaged manifest is passed over", why=str(error))
        return found

    async def _next_manifest(self, sequence: int) -> StoredMessage | None:
        query: dict[str, object] = {
            "seq": sequence,
            "next_by_subj": self._subjects.snapshot_manifest,
        }
        return await get_message(self._connection, self._stream, query)

    async def _put(self, subject: str, body: bytes) -> None:
        """Publish, again if need be: a chunk that is there twice does no harm."""
        problem: Problem | None = None
        pauses = backoff(0.05)
        for _ in range(TRIES):
            await self._connection.ready()
            try:
                answer = await publish(self._connection, subject, body, {}, timeout_seconds=10.0)
            except Unanswered:
                await asyncio.sleep(next(pauses))
                continue
            problem = answer.error
            if problem is None:
                return
            if problem.err_code in STORAGE_REFUSES:
                raise LogFull(f"There is no room for a snapshot ({problem.description}).")
            await asyncio.sleep(next(pauses))
        raise Unanswered(
            f"The snapshot could not be stored: {problem.description if problem else 'no answer'}."
        )

    async def _read(self, manifest: Manifest) -> bytes:
        chunks: dict[int, bytes] = {}
        state = await stream_info(self._connection, self._stream, self._chunks_of(manifest.id))
        stored = sum(state.state.subjects.values())
        if len(state.state.subjects) < manifest.chunks:
            raise Corrupt(f"{manifest.chunks - len(state.state.subjects)} chunks are missing")
        if manifest.chunks == 0:
            return b""
        pull = await Pull.open(self._connection, self._stream, 1, self._chunks_of(manifest.id))
        try:
            received = 0
            while len(chunks) < manifest.chunks and received < stored:
                messages = await pull.take()
                if not messages:
                    raise Corrupt("a chunk cannot be read")
                received += len(messages)
                for message in messages:
                    chunks[int(message.subject.rpartition(".")[2])] = message.data
        except PullBroken as broken:
            raise Unanswered(broken.message) from broken
        finally:
            await pull.close()
        body = b"".join(chunks[index] for index in sorted(chunks))
        if (
            len(body) != manifest.size
            or await asyncio.to_thread(_checksum, body) != manifest.checksum
        ):
            raise Corrupt("the checksum does not fit")
        return body

    async def _tidy(self, now: Timestamp) -> None:
        try:
            kept = (await self.manifests())[-KEPT:]
            await self._purge(self._subjects.snapshot_manifest, keep=KEPT)
            known = {manifest.id for manifest in kept}
            oldest = min((manifest.at for manifest in kept), default=now)
            info = await stream_info(self._connection, self._stream, self._chunks_of("*"))
            ids = {subject.split(".")[-2] for subject in info.state.subjects}
            for snapshot_id in ids - known:
                at = int(snapshot_id.partition("-")[0])
                if at < oldest or at < now - ORPHAN_AGE:
                    await self._forget(snapshot_id)
        except (Unanswered, Refused) as problem:
            logger.warning("old snapshots were not removed", why=problem.message)

    async def _forget(self, snapshot_id: str) -> None:
        await self._purge(self._chunks_of(snapshot_id))

    async def _purge(self, subject: str, keep: int = 0) -> None:
        body = {"filter": subject, "keep": keep} if keep else {"filter": subject}
        await ask(self._connection, f"STREAM.PURGE.{self._stream}", body, Answer)

    def _chunks_of(self, snapshot_id: str) -> str:
        return f"{self._subjects.prefix}.snapshots.chunk.{snapshot_id}.*"


def _checksum(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=32).hexdigest()

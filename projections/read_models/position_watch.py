"""Knows how far the read model is, and lets readers wait for a sequence.

The projector notifies with each transaction. When the connection is lost, so are notifications;
after a reconnection the position is read again. A reader whose time is up looks once more itself.
"""

import asyncio

import asyncpg
import structlog

from penstock.errors import Unavailable
from penstock.projections.read_models.database import AWAY, REPLACED, Connection

logger = structlog.get_logger("penstock.read_model")

RETRY_SECONDS = 0.5


class PositionWatch:
    def __init__(self, database_url: str, schema: str) -> None:
        self.sequence = 0
        """The last sequence that was heard of."""
        self._database_url = database_url
        self._schema = schema
        self._waiting: dict[asyncio.Future[None], int] = {}

    async def run(self) -> None:
        """Listen for ever."""
        while True:
            try:
                connection = await asyncpg.connect(self._database_url)
                try:
                    await self._listen(connection)
                finally:
                    connection.terminate()
            except AWAY as error:
                logger.debug("postgres_is_away", why=str(error))
            await asyncio.sleep(RETRY_SECONDS)

    async def wait_for(self, sequence: int, timeout_seconds: float) -> None:
        """Return when the read model holds a sequence. Raises `Unavailable` if it takes longer."""
        if self.sequence >= sequence:
            return
        reached = asyncio.get_running_loop().create_future()
        self._waiting[reached] = sequence
        try:
            async with asyncio.timeout(timeout_seconds):
                await reached
        except TimeoutError:
            raise Unavailable(
                f"The read model is at sequence {self.sequence} and did not come to {sequence} "
                "in time. Try again in a moment.",
                sequence=self.sequence,
            ) from None
        finally:
            del self._waiting[reached]

    async def _listen(self, connection: Connection) -> None:
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        await connection.add_listener(
            f"{self._schema}_position",
            lambda _connection, _process, _channel, payload: self.moved(int(payload)),
        )
        try:
            position = await connection.fetchval(f"SELECT sequence FROM {self._schema}.position")
        except REPLACED:
            position = None
        self.moved(position or 0)
        await lost.wait()

    def moved(self, sequence: int) -> None:
        """The read model is at this sequence now: as a rule a higher one, but a new one may start
        over."""
        self.sequence = sequence
        for reached, wanted in self._waiting.items():
            if wanted <= sequence and not reached.done():
                reached.set_result(None)

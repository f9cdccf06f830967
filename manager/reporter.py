"""Tells the coordinator what happened.

One report is under way at a time and is repeated until it is answered; what happens meanwhile goes
into the next. A lone result is reported at once. While the manager has plenty of work to go on
with, results gather for a moment, because a report costs the coordinator a commit.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable

import msgspec
import structlog

from penstock.events.append import Unanswered
from penstock.events.connection import Connection
from penstock.events.manager_protocol import Report, ReportReply
from penstock.manager.core import Core
from penstock.manager.spool import Spool

logger = structlog.get_logger("penstock.manager")

CALL_SECONDS = 5.0
FIRST_DELAY_SECONDS = 0.05
LONGEST_DELAY_SECONDS = 2.0
GATHER_SECONDS = 0.1
GATHER_RESULTS = 1024


class Reporter:
    def __init__(
        self,
        connection: Connection,
        subject: str,
        manager_id: str,
        incarnation: str,
        core: Core,
        spool: Spool,
        *,
        epoch: Callable[[], int],
        synchronised: asyncio.Event,
        on_not_synchronised: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._subject = subject
        self._manager_id = manager_id
        self._incarnation = incarnation
        self._core = core
        self._spool = spool
        self._epoch = epoch
        self._synchronised = synchronised
        self._on_not_synchronised = on_not_synchronised
        self._news = asyncio.Event()
        self._all_told = asyncio.Event()
        self._reported_at = 0.0
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(ReportReply)

    def tell_news(self) -> None:
        """There is something to report."""
        self._all_told.clear()
        self._news.set()

    async def all_told(self) -> None:
        """Wait until the coordinator knows everything."""
        if self._core.outbox:
            await self._all_told.wait()

    async def run(self) -> None:
        delay = FIRST_DELAY_SECONDS
        while True:
            if not self._core.outbox:
                self._all_told.set()
                self._news.clear()
                await self._news.wait()
            await self._synchronised.wait()
            await self._gather()
            contents = self._core.outbox.next()
            if contents is None:
                continue
            report = Report(
                manager_id=self._manager_id,
                incarnation=self._incarnation,
                started=contents.started,
                finished=contents.finished,
                returned=contents.returned,
                capacity=self._core.capacity,
            )
            if await self._send(report):
                settled = self._core.on_answer()
                self._spool.answered(settled.results)
                delay = FIRST_DELAY_SECONDS
            elif self._synchronised.is_set():
                await asyncio.sleep(delay)
                delay = min(delay * 2, LONGEST_DELAY_SECONDS)

    async def _gather(self) -> None:
        wait_until = self._reported_at + GATHER_SECONDS
        while (
            self._core.has_backlog
            and self._core.outbox.waiting_results < GATHER_RESULTS
            and (left := wait_until - time.monotonic()) > 0
        ):
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), left)
        self._reported_at = time.monotonic()

    async def _send(self, report: Report) -> bool:
        """True when the report is in the log."""
        await self._connection.ready()
        try:
            answer = await self._connection.call(
                self._subject, self._encoder.encode(report), timeout_seconds=CALL_SECONDS
            )
            reply = self._decoder.decode(answer.data)
        except Unanswered:
            return False
        except msgspec.DecodeError as error:
            logger.error("report_answer_unreadable", error=str(error))
            return False
        if reply.error == "not_synchronised":
            self._on_not_synchronised()
        elif reply.error:
            logger.warning("report_refused", code=reply.error, message=reply.message)
        elif reply.epoch != self._epoch():
            # Another leader's: what it says to have written may not be in the log.
            logger.warning("report_answer_of_other_epoch", epoch=reply.epoch, now=self._epoch())
            if reply.epoch > self._epoch():
                self._on_not_synchronised()
        else:
            return True
        return False

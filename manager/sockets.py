"""The manager's ZeroMQ sockets, on the event loop.

ZeroMQ's descriptor only says that something changed: after each time it became readable, and after
each send, the socket has to be emptied before the descriptor will speak again.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable

import msgspec
import structlog
import zmq

from penstock.events.worker_protocol import (
    Control,
    Hello,
    Identify,
    Place,
    Results,
    Run,
    WorkerMessage,
)

logger = structlog.get_logger("penstock.manager")


class Sockets:
    """`on_message` gets the sender, the message and its encoded form; `on_rest` is called when all
    that had arrived was handled."""

    def __init__(
        self,
        place: Place,
        on_message: Callable[[bytes, Hello | Results, bytes], None],
        on_rest: Callable[[], None],
    ) -> None:
        self._on_message = on_message
        self._on_rest = on_rest
        self._loop = asyncio.get_running_loop()
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(WorkerMessage)
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.set(zmq.SNDHWM, 0)
        self._router.set(zmq.RCVHWM, 0)
        # The PUB side, as an XPUB: it greets every subscriber with a message, so that a worker is
        # asked for its hello exactly when it can hear us.
        self._publisher = self._context.socket(zmq.XPUB)
        self._publisher.set(zmq.SNDHWM, 0)
        self._publisher.set(
            zmq.XPUB_WELCOME_MSG, self._encoder.encode(Identify(manager_pid=os.getpid()))
        )
        self._publisher.bind(place.control)
        self._router.bind(place.router)
        self._scheduled = False

    def listen(self) -> None:
        """Begin to receive. Until then messages wait."""
        self._loop.add_reader(self._router.FD, self._receive)
        self._loop.add_reader(self._publisher.FD, self._note_subscribers)
        self._look_again()

    def send(self, identity: bytes, run: Run) -> None:
        self._router.send(identity, zmq.SNDMORE)
        self._router.send(self._encoder.encode(run))
        self._look_again()

    def publish(self, control: Control) -> None:
        self._publisher.send(self._encoder.encode(control))
        self._look_again()

    def _look_again(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._scheduled = False
        self._note_subscribers()
        if int(self._router.EVENTS) & zmq.POLLIN:
            self._receive()

    def _note_subscribers(self) -> None:
        with contextlib.suppress(zmq.Again):
            while True:
                self._publisher.recv(zmq.NOBLOCK)

    def _receive(self) -> None:
        receive = self._router.recv
        received = False
        try:
            while True:
                identity = receive(zmq.NOBLOCK)
                encoded = receive(zmq.NOBLOCK)
                received = True
                try:
                    message = self._decoder.decode(encoded)
                except (msgspec.DecodeError, ValueError, RecursionError) as error:
                    logger.error(
                        "worker_message_unreadable", worker=str(identity), error=str(error)
                    )
                    continue
                self._on_message(identity, message, encoded)
        except zmq.Again:
            pass
        if received:
            self._on_rest()

    def close(self) -> None:
        self._loop.remove_reader(self._router.FD)
        self._loop.remove_reader(self._publisher.FD)
        self._router.close(0)
        self._publisher.close(0)
        self._context.term()

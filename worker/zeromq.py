"""Communication with the manager of this machine, over ZeroMQ on ipc."""

import os
import threading
from typing import Any

import msgspec
import zmq

from penstock.events.worker_protocol import Control, Identify, Place, Run, identity

LINGER_MILLISECONDS = 2000


class ZeroMQCommunication:
    def __init__(self, place: Place, worker: int) -> None:
        self.turn = threading.Lock()
        self._run = msgspec.msgpack.Decoder(Run)
        self._control = msgspec.msgpack.Decoder(Control)
        self._context = zmq.Context()
        self._dealer = self._context.socket(zmq.DEALER)
        self._dealer.set(zmq.IDENTITY, identity(worker, os.getpid()))
        # A manager that is away must not make the worker wait: what it holds is bounded anyway.
        self._dealer.set(zmq.SNDHWM, 0)
        self._dealer.set(zmq.RCVHWM, 0)
        self._dealer.set(zmq.RECONNECT_IVL, 20)
        self._dealer.set(zmq.RECONNECT_IVL_MAX, 500)
        self._dealer.connect(place.router)
        self._woken = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._waiting: list[Any] = [(self._dealer, zmq.POLLIN), (self._woken, zmq.POLLIN)]
        # A context of its own: the main thread ends its context to have its messages delivered,
        # while the attendant still waits here.
        self._subscriber = zmq.Context().socket(zmq.SUB)
        self._subscriber.set(zmq.RECONNECT_IVL, 20)
        self._subscriber.set(zmq.RECONNECT_IVL_MAX, 500)
        self._subscriber.set(zmq.RCVHWM, 0)
        self._subscriber.subscribe(b"")
        self._subscriber.connect(place.control)
        self._attendant_woken = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._manager: int | None = None
        """Descriptor of the manager's process; None when the manager has ended."""

    def fetch(self, *, wait: bool) -> list[Run]:
        messages = self._receive()
        if not messages and wait:
            zmq.zmq_poll(self._waiting, -1)
            _clear(self._woken)
            messages = self._receive()
        return messages

    def _receive(self) -> list[Run]:
        messages: list[Run] = []
        receive = self._dealer.recv
        try:
            while True:
                messages.append(self._run.decode(receive(zmq.NOBLOCK)))
        except zmq.Again:
            return messages

    def report(self, message: bytes) -> None:
        self._dealer.send(message, zmq.NOBLOCK)

    def wake(self) -> None:
        os.eventfd_write(self._woken, 1)

    def controls(self, timeout_seconds: float | None) -> list[Control]:
        waiting: list[Any] = [(self._subscriber, zmq.POLLIN), (self._attendant_woken, zmq.POLLIN)]
        if self._manager is not None:
            waiting.append((self._manager, zmq.POLLIN))
        timeout = -1 if timeout_seconds is None else max(0, int(timeout_seconds * 1000))
        ready = [source for source, _ in zmq.zmq_poll(waiting, timeout)]
        _clear(self._attendant_woken)
        if any(source == self._manager for source in ready):
            self._forget_manager()
        controls: list[Control] = []
        try:
            while True:
                control = self._control.decode(self._subscriber.recv(zmq.NOBLOCK))
                if isinstance(control, Identify):
                    self._remember_manager(control.manager_pid)
                controls.append(control)
        except zmq.Again:
            return controls

    def wake_attendant(self) -> None:
        os.eventfd_write(self._attendant_woken, 1)

    def manager_is_away(self) -> bool:
        return self._manager is None

    def _remember_manager(self, pid: int) -> None:
        self._forget_manager()
        try:
            self._manager = os.pidfd_open(pid)
        except ProcessLookupError:
            self._manager = None

    def _forget_manager(self) -> None:
        if self._manager is not None:
            os.close(self._manager)
            self._manager = None

    def close(self) -> None:
        self._dealer.close(LINGER_MILLISECONDS)
        self._context.term()


def _clear(descriptor: int) -> None:
    try:
        os.eventfd_read(descriptor)
    except BlockingIOError:
        return

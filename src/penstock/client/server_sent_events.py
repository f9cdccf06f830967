"""Server-sent events, from lines to events: the part of the standard that Penstock uses."""

import msgspec


class ServerSentEvent(msgspec.Struct, frozen=True):
    name: str
    data: bytes


class EventReader:
    """Takes lines one by one and says when an event is whole."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, after the stream broke within an event."""
        self._name = "message"
        self._data: list[bytes] = []

    def read(self, line: bytes) -> ServerSentEvent | None:
        line = line.removesuffix(b"\r")
        if not line:
            name, data = self._name, self._data
            self.forget()
            if name == "message" and not data:
                return None
            return ServerSentEvent(name, b"\n".join(data))
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            self._name = value.decode()
        elif field == b"data":
            self._data.append(value)
        return None

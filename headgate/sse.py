"""Server-sent events as bytes, both ways. Source: WHATWG HTML, section 9.2."""

from collections.abc import Iterator
from dataclasses import dataclass

MEDIA_TYPE = "text/event-stream"
HEARTBEAT = b": still here\n\n"
"""A comment: it says that the other side lives, and is no event."""


class StreamError(Exception):
    """What comes is not a stream of events, or a line of it is longer than is accepted."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `kind` is its `event` field, `data` has no line breaks here."""

    kind: str
    data: bytes
    id: str = ""

    def encode(self) -> bytes:
        """The event as it travels."""
        head = f"event: {self.kind}\n" + (f"id: {self.id}\n" if self.id else "")
        return head.encode() + b"data: " + self.data + b"\n\n"


class Parser:
    """Takes bytes as they come, gives events as they are complete.

    Lines end in LF or CRLF; a lone CR, which the specification has too, nobody sends. `max_line`
    is in bytes.
    """

    def __init__(self, *, max_line: int) -> None:
        self._max_line = max_line
        self._rest = bytearray()
        self._kind = ""
        self._id = ""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The events that these bytes complete.

        Raises:
            StreamError: a line is too long, or not UTF-8 where it is a name.
        """
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._grow(line)
            whole = bytes(self._rest).removesuffix(b"\r")
            self._rest.clear()
            event = self._line(whole)
            if event is not None:
                yield event
        self._grow(rest)

    def _grow(self, part: bytes) -> None:
        self._rest += part
        if len(self._rest) > self._max_line:
            raise StreamError(f"a line of more than {self._max_line} bytes")

    def _line(self, line: bytes) -> Event | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._data.append(value)
            case b"event":
                self._kind = _text(value)
            case b"id":
                self._id = _text(value)
            case _:  # a comment, `retry`, or what a later version has
                pass
        return None

    def _dispatch(self) -> Event | None:
        kind, data, self._kind, self._data = self._kind, self._data, "", []
        return Event(kind or "message", b"\n".join(data), self._id) if data else None


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise StreamError("a name that is not UTF-8") from error

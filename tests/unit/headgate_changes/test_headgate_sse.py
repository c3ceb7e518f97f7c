"""Events as bytes: what is sent is what is read, however the bytes are cut."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.sse import HEARTBEAT, Event, Parser, StreamError

EVENTS = [Event("snapshot", b'{"version":1}', "1"), Event("change", b"{}", "2")]
STREAM = EVENTS[0].encode() + HEARTBEAT + EVENTS[1].encode()


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_events_come_whole_however_the_bytes_are_cut(cuts: list[int]):
    """Any cutting of the stream gives the same events."""
    edges = [0, *sorted(cuts), len(STREAM)]
    parser = Parser(max_line=100)
    parts = [STREAM[a:b] for a, b in itertools.pairwise(edges)]
    assert [event for part in parts for event in parser.feed(part)] == EVENTS


def test_what_the_specification_has_beside_is_read():
    """CRLF, several data lines, no space after the colon, unknown fields, an event without data."""
    stream = b"event:a\r\ndata:1\r\ndata: 2\r\nretry: 5\r\n\r\nevent: empty\n\ndata: 3\n\n"
    found = list(Parser(max_line=100).feed(stream))
    assert found == [Event("a", b"1\n2"), Event("message", b"3")]


@pytest.mark.parametrize("stream", [b"data: " + 200 * b"x", b"event: \xff\ndata: 1\n\n"])
def test_what_is_no_stream_is_refused(stream: bytes):
    """A line without an end does not fill the memory; a name must be UTF-8."""
    with pytest.raises(StreamError):
        list(Parser(max_line=100).feed(stream))

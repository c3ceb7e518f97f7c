"""The session protocol's frames."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.sessions.frames import MAX_BODY, MAX_NOISE, Decoder, ProtocolError, encode

NONCE = "n" * 32
HELLO = f"HGS1 {NONCE}\n".encode()


@given(bodies=st.lists(st.binary(max_size=300), max_size=5), cuts=st.data())
def test_frames_survive_any_cutting(bodies: list[bytes], cuts: st.DataObject):
    """However the bytes arrive, the same frames come out, noise in front or not."""
    stream = b"Welcome to the cluster!\r\nHGS1 other\n" + HELLO
    stream += b"".join(encode({"id": index}, body) for index, body in enumerate(bodies))
    decoder, found = Decoder(NONCE), []
    while stream:
        cut = cuts.draw(st.integers(1, len(stream)))
        found += list(decoder.feed(stream[:cut]))
        stream = stream[cut:]
    assert [body for _, body in found] == bodies
    assert [header["id"] for header, _ in found] == list(range(len(bodies)))


def test_a_long_body_travels_in_frames_of_one_message():
    """A body over the limit is cut, and all but its last frame say `more`."""
    decoder = Decoder(NONCE)
    frames = list(decoder.feed(HELLO + encode({"id": 1, "op": "x"}, b"a" * (2 * MAX_BODY + 1))))
    assert [header.get("more", False) for header, _ in frames] == [True, True, False]
    assert [header.get("op") for header, _ in frames] == ["x", None, None]
    assert sum(len(body) for _, body in frames) == 2 * MAX_BODY + 1


def test_endless_noise_is_cut_off():
    """A user whose start-up files print without end does not fill our memory."""
    with pytest.raises(ProtocolError):
        list(Decoder(NONCE).feed(b"x" * (MAX_NOISE + 1)))


@pytest.mark.parametrize(
    "frame", [b"\xff\xff\xff\xff\0\0\0\0", b"\0\0\0\x02\0\0\0\0[]", b"\0\0\0\x01\0\0\0\0{"]
)
def test_what_is_no_frame_is_refused(frame: bytes):
    """Limits and shape are checked before anything is believed."""
    with pytest.raises(ProtocolError):
        list(Decoder(NONCE).feed(HELLO + frame))

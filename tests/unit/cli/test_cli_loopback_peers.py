"""Whose a loopback connection is, by the kernel's table; lines as Linux 6 writes them."""

import os
import socket

import pytest

from headgate.cli.loopback_peers import Peer, told, whose

PEER, OURS = ("127.0.0.1", 40000), ("127.0.0.1", 35347)
UID = 1000
SIX = "0000000000000000FFFF0000"
HERE, THERE = "0100007F:8A13", "0100007F:9C40"


def line(local: str, remote: str, uid: int, inode: int, state: str = "01") -> str:
    """A line of /proc/net/tcp."""
    return (
        f"   0: {local} {remote} {state} 00000000:00000000 00:00000000 00000000 {uid:5}        0 "
        f"{inode} 1 0000000000000000 20 4 30 10 -1"
    )


OUR_END = line(HERE, THERE, UID, 7)


@pytest.mark.parametrize(
    ("theirs", "peer"),
    [
        (line(THERE, HERE, UID, 8), Peer.OURS),
        (line(THERE, HERE, 0, 8), Peer.OURS),
        (line(THERE, HERE, 1001, 8), Peer.OTHERS),
        (line(THERE, HERE, 0, 0, "06"), Peer.OTHERS),
        (line(THERE, HERE, 0, 0, "05"), Peer.OTHERS),
        (line(THERE, "0100007F:0001", 1001, 8), Peer.GONE),
        (line(SIX + THERE, SIX + HERE, 1, 8), Peer.OTHERS),
        (line(SIX + THERE, SIX + HERE, UID, 8), Peer.OURS),
    ],
    ids=["own", "root", "other", "gone", "closing", "missing", "other by IPv6", "own by IPv6"],
)
def test_who_is_at_the_other_end(theirs: str, peer: Peer):
    """Another user is told from us, and so is an end that was closed before we could look."""
    assert told([OUR_END, theirs, "short"], PEER, OURS, UID) is peer


def test_a_table_that_knows_nothing_tells_nothing():
    """Where the system does not list connections, that is no reason to refuse."""
    assert told([], PEER, OURS, UID) is Peer.UNTOLD
    assert told([line("0100007F:0001", "0100007F:0002", 1, 8)], PEER, OURS, UID) is Peer.UNTOLD


def test_a_real_connection_is_ours():
    """The table of this system is read as it is."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = server.getsockname()
        with socket.create_connection(ours) as client, server.accept()[0]:
            assert whose(client.getsockname(), ours, os.geteuid()) in {Peer.OURS, Peer.UNTOLD}

"""Which user of this machine is at the other end of a loopback connection (proc(5), /proc/net/tcp).

Who may look at this machine's processes sees what a browser was started with: an address on the
loopback is no secret, and everybody here can connect to it.
"""

import socket
import struct
from collections.abc import Iterable
from enum import Enum
from pathlib import Path

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_MAPPED = "0000000000000000FFFF0000"
"""What stands before an IPv4 address in the second table (RFC 4291, section 2.5.5.2)."""
_LOCAL, _REMOTE, _UID, _INODE = 1, 2, 7, 9

Address = tuple[str, int]


class Peer(Enum):
    """Whose the other end is; `GONE`: it is not, or no more, one of this system's programs."""

    OURS = "ours"
    OTHERS = "others"
    GONE = "gone"
    UNTOLD = "untold"


def whose(peer: Address, ours: Address, uid: int) -> Peer:
    """Whose the other end is, for the user `uid`; root, who could do anything anyway, is `OURS`."""
    lines: list[str] = []
    for table in TABLES:
        try:
            lines += table.read_text(encoding="ascii").splitlines()[1:]
        except (OSError, UnicodeDecodeError):
            continue
    return told(lines, peer, ours, uid)


def told(lines: Iterable[str], peer: Address, ours: Address, uid: int) -> Peer:
    """The same by the lines of the kernel's tables.

    An end that was closed has no inode and no user any more: its user could have been anybody. It
    is missing where a virtual machine's host connects, WSL's for one.
    """
    here, there = _written(ours), _written(peer)
    found = Peer.UNTOLD
    for line in lines:
        fields = line.split()
        if len(fields) <= _INODE:
            continue
        local, remote = (fields[at].removeprefix(_MAPPED) for at in (_LOCAL, _REMOTE))
        if (local, remote) == (there, here):
            own = fields[_INODE] != "0" and fields[_UID] in {"0", str(uid)}
            return Peer.OURS if own else Peer.OTHERS
        if (local, remote) == (here, there):
            found = Peer.GONE
    return found


def _written(address: Address) -> str:
    """An IPv4 address and port as the kernel writes them: the address as a number of this host."""
    (number,) = struct.unpack("=I", socket.inet_aton(address[0]))
    return f"{number:08X}:{address[1]:04X}"

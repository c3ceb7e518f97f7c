"""Where `ssh -J` may go on to: the listed hosts and ports, and never further inside."""

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from typing import Annotated

import msgspec

from headgate.settings import Section

RESOLVE_SECONDS = 5.0
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Target(Section, frozen=True):
    """One host and port, as the person writes it after `ssh -J`.

    With `address` the name is not looked up: connections go there. Without it, a name that leads
    to this machine, to a link-local (cloud metadata) or to no unicast address is refused.
    """

    host: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 22
    address: str = ""

    def __post_init__(self) -> None:
        """Refuse what could never be reached, or would lead inside.

        Raises:
            ValueError: naming the host.
        """
        if self.address:
            ipaddress.ip_address(self.address)
        elif (literal := _literal(self.host)) and not _outside(literal):
            raise ValueError(
                f"{self.host}: not an address that is reached over the network; if it is meant, "
                "give it a name as host and this as address"
            )


class TargetError(Exception):
    """A target that cannot be reached; the message may be shown to the person."""


class Targets:
    """The allow-list."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._targets = {(target.host.lower(), target.port): target for target in targets}

    def find(self, host: str, port: int) -> Target | None:
        """The target of exactly that name and port; None: it is not allowed."""
        return self._targets.get((host.lower().removesuffix("."), port))


async def addresses(target: Target) -> tuple[str, ...]:
    """Where a target is, each to be connected to as it is: a name is looked up only here.

    Raises:
        TargetError: it is unknown, or one of its addresses is on the inside.
    """
    if target.address:
        return (target.address,)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLVE_SECONDS):
            found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError) as error:
        raise TargetError(f"{target.host} cannot be found") from error
    names = tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not names or not all(_outside(_address(name)) for name in names):
        raise TargetError(f"{target.host} leads to an address that is not allowed")
    return names


def _outside(address: _Address) -> bool:
    return not (
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or address.is_reserved
    )


def _address(name: str) -> _Address:
    address = ipaddress.ip_address(name.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _literal(host: str) -> _Address | None:
    try:
        return _address(host)
    except ValueError:
        return None

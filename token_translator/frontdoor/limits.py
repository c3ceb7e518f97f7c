"""How many may be inside, at the threshold, and from where: connections are counted by value."""

import ipaddress
from collections import Counter
from dataclasses import dataclass
from typing import Annotated, TypeVar

import msgspec

from headgate.identity import Identity
from headgate.settings import Section

T = TypeVar("T")
Count = Annotated[int, msgspec.Meta(ge=1)]


class LimitSettings(Section, frozen=True):
    """What a visitor may use up; times in seconds.

    A connection is half-open until its login has succeeded, for which it has `login_seconds`.
    `failures` failed logins from one address within `failure_window` close the door to it until
    the window has passed; an identity may log in `logins_per_minute` times. IPv6
    addresses are counted by their /64 network.
    """

    connections: Count = 500
    connections_per_address: Count = 100
    connections_per_identity: Count = 30
    half_open: Count = 100
    half_open_per_address: Count = 20
    channels: Annotated[int, msgspec.Meta(ge=1, le=10)] = 10
    login_seconds: Annotated[int, msgspec.Meta(ge=5, le=600)] = 60
    failures: Count = 20
    failure_window: Annotated[int, msgspec.Meta(ge=10, le=86400)] = 600
    logins_per_minute: Count = 60


def source(address: str) -> str:
    """What an address counts as: an IPv4 address itself, of an IPv6 address its /64 network."""
    # A link-local address carries its interface: fe80::1%eth0.
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))


@dataclass(slots=True, eq=False)
class Place:
    """One connection's place among those that are counted."""

    source: str
    half_open: bool = True
    identity: Identity | None = None
    released: bool = False


class Places:
    """The connections of this process, and whether there is room for one more."""

    def __init__(self, limits: LimitSettings) -> None:
        self._limits = limits
        self._sources: Counter[str] = Counter()
        self._half_open: Counter[str] = Counter()
        self._identities: Counter[Identity] = Counter()

    @property
    def taken(self) -> int:
        """How many there are."""
        return self._sources.total()

    def take(self, source: str) -> Place | None:
        """A place for a new connection from there; None if there is no room."""
        limits = self._limits
        if (
            self._sources.total() >= limits.connections
            or self._sources[source] >= limits.connections_per_address
            or self._half_open.total() >= limits.half_open
            or self._half_open[source] >= limits.half_open_per_address
        ):
            return None
        self._sources[source] += 1
        self._half_open[source] += 1
        return Place(source)

    def enter(self, place: Place, identity: Identity) -> bool:
        """Count a connection as that person's from now on; False if they have too many."""
        if self._identities[identity] >= self._limits.connections_per_identity:
            return False
        self._close_threshold(place)
        self._identities[identity] += 1
        place.identity = identity
        return True

    def release(self, place: Place) -> None:
        """Give a place back; again is no harm."""
        if place.released:
            return
        place.released = True
        self._close_threshold(place)
        _less(self._sources, place.source)
        if place.identity is not None:
            _less(self._identities, place.identity)

    def _close_threshold(self, place: Place) -> None:
        if place.half_open:
            place.half_open = False
            _less(self._half_open, place.source)


def _less(counter: Counter[T], name: T) -> None:
    counter[name] -= 1
    if not counter[name]:
        del counter[name]  # whoever is gone leaves nothing behind

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
    the window has passed; an identity may log in `logins_per_minute` times. An IPv6 address counts
    as its /64. What an address may have of something, its network (IPv4: /24, IPv6: /48) may have
    twice, unless `…_per_network` says otherwise. The last quarter of every limit for all is kept
    for networks, and of a network's for addresses, that have nothing yet.
    """

    connections: Count = 500
    connections_per_network: Count | None = None
    connections_per_address: Count = 100
    connections_per_identity: Count = 30
    half_open: Count = 100
    half_open_per_network: Count | None = None
    half_open_per_address: Count = 20
    channels: Annotated[int, msgspec.Meta(ge=1, le=10)] = 10
    login_seconds: Annotated[int, msgspec.Meta(ge=5, le=600)] = 60
    failures: Count = 20
    failure_window: Annotated[int, msgspec.Meta(ge=10, le=86400)] = 600
    logins_per_minute: Count = 60


@dataclass(frozen=True, slots=True)
class Origin:
    """From where somebody comes: the address, what it counts as, and the network around that."""

    address: str
    source: str
    network: str


def origin(address: str) -> Origin:
    """What an address counts as: IPv4 as itself and its /24, IPv6 as its /64 and /48.

    Whoever has one IPv6 address has a /64, and many a line has a /56 or a /48.
    """
    # A link-local address carries its interface: fe80::1%eth0.
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        found = found.ipv4_mapped or found
    if isinstance(found, ipaddress.IPv4Address):
        return Origin(str(found), str(found), _around(found, 24))
    return Origin(str(found), _around(found, 64), _around(found, 48))


def _around(address: ipaddress.IPv4Address | ipaddress.IPv6Address, bits: int) -> str:
    return str(ipaddress.ip_network((address, bits), strict=False))


@dataclass(slots=True, eq=False)
class Place:
    """One connection's place among those that are counted."""

    origin: Origin
    half_open: bool = True
    identity: Identity | None = None
    released: bool = False

    @property
    def source(self) -> str:
        """What the connection's address counts as."""
        return self.origin.source


class _Crowd:
    """Those who have some of one thing: in all, by network, by source."""

    def __init__(self, most: int, of_network: int | None, of_source: int) -> None:
        self._most = most
        self._of_network = 2 * of_source if of_network is None else of_network
        self._of_source = of_source
        self._networks: Counter[str] = Counter()
        self._sources: Counter[str] = Counter()
        self.size = 0

    def has_room(self, origin: Origin) -> bool:
        """Whether one more from there may come."""
        network, source = self._networks[origin.network], self._sources[origin.source]
        return (
            source < self._of_source
            and _open(network, self._of_network, newcomer=source == 0)
            and _open(self.size, self._most, newcomer=network == 0)
        )

    def add(self, origin: Origin) -> None:
        """One more."""
        self.size += 1
        self._networks[origin.network] += 1
        self._sources[origin.source] += 1

    def remove(self, origin: Origin) -> None:
        """One less."""
        self.size -= 1
        _less(self._networks, origin.network)
        _less(self._sources, origin.source)


def _open(taken: int, most: int, *, newcomer: bool) -> bool:
    """Whether there is room; the last quarter is for those who have nothing yet."""
    return taken < (most if newcomer else most - most // 4)


class Places:
    """The connections of this process, and whether there is room for one more."""

    def __init__(self, limits: LimitSettings) -> None:
        self._limits = limits
        self._inside = _Crowd(
            limits.connections, limits.connections_per_network, limits.connections_per_address
        )
        self._half_open = _Crowd(
            limits.half_open, limits.half_open_per_network, limits.half_open_per_address
        )
        self._identities: Counter[Identity] = Counter()

    @property
    def taken(self) -> int:
        """How many there are."""
        return self._inside.size

    def take(self, address: str) -> Place | None:
        """A place for a new connection from that address; None if there is no room."""
        place = Place(origin(address))
        if not self._inside.has_room(place.origin) or not self._half_open.has_room(place.origin):
            return None
        self._inside.add(place.origin)
        self._half_open.add(place.origin)
        return place

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
        self._inside.remove(place.origin)
        if place.identity is not None:
            _less(self._identities, place.identity)

    def _close_threshold(self, place: Place) -> None:
        if place.half_open:
            place.half_open = False
            self._half_open.remove(place.origin)


def _less(counter: Counter[T], name: T) -> None:
    counter[name] -= 1
    if not counter[name]:
        del counter[name]  # whoever is gone leaves nothing behind

"""Places and attempts: what a stranger can use up, and what a restart forgets (nothing)."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from headgate.clock import HeldClock
from headgate.identity import Identity
from headgate.settings import SettingsError
from token_translator.frontdoor.attempts import Attempts
from token_translator.frontdoor.descriptors import fitted
from token_translator.frontdoor.limits import LimitSettings, Places, origin

ALICE = Identity("https://issuer.example/", "alice")
BOB = Identity("https://issuer.example/", "bob")


A, B, C = "192.0.2.1", "198.51.100.1", "203.0.113.1"
"""Three addresses of three networks."""


@pytest.mark.parametrize(
    ("address", "counted", "network"),
    [
        ("192.0.2.7", "192.0.2.7", "192.0.2.0/24"),
        ("::ffff:192.0.2.7", "192.0.2.7", "192.0.2.0/24"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64", "2001:db8:1::/48"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64", "2001:db8:1::/48"),
        ("fe80::1%eth0", "fe80::/64", "fe80::/48"),
    ],
)
def test_addresses_are_counted_as_one_holder_has_them(address: str, counted: str, network: str):
    """An IPv4 address counts for itself, however written, and with its neighbours; IPv6 by /64."""
    found = origin(address)
    assert (found.source, found.network) == (counted, network)


@pytest.mark.parametrize(
    ("address", "plain"), [("::ffff:192.0.2.7", "192.0.2.7"), ("fe80::1%eth0", "fe80::1")]
)
def test_an_address_as_others_understand_it(address: str, plain: str):
    """What the translator is told of an address has no zone, and IPv4 is IPv4."""
    assert origin(address).address == plain


def test_half_open_connections_have_their_own_limit():
    """Who has not logged in takes up the threshold; who has, makes room there."""
    places = Places(LimitSettings(half_open=2))
    first, second = places.take(A), places.take(B)
    assert first
    assert second
    assert places.take(C) is None
    assert places.enter(first, ALICE)
    assert places.take(C)


def test_one_address_cannot_take_all_places():
    """Each address has a share of the threshold and of the house."""
    places = Places(LimitSettings(half_open_per_address=1, connections_per_address=2))
    first = places.take(A)
    assert first
    assert places.take(A) is None
    assert places.take(B)
    assert places.enter(first, ALICE)
    second = places.take(A)
    assert second
    assert places.enter(second, ALICE)
    assert places.take(A) is None


def crowd(places: Places, addresses: Iterable[str], each: int = 1000) -> int:
    """How many get in of that many from each address."""
    return sum(places.take(address) is not None for address in addresses for _ in range(each))


@pytest.mark.parametrize(
    ("attackers", "visitor"),
    [
        ([f"2001:db8:7:{n:x}::1" for n in range(1000)], "2001:db8:8::1"),
        ([f"192.0.2.{n}" for n in range(256)], "198.51.100.1"),
    ],
)
def test_many_addresses_of_one_line_leave_room(attackers: list[str], visitor: str):
    """Neither the /64s of one /48 nor the addresses of a /24 fill the threshold."""
    places = Places(LimitSettings(half_open=100, half_open_per_address=20))
    assert crowd(places, attackers, each=50) == 40
    assert crowd(places, [visitor], each=50) == 20


def test_a_reserve_is_for_networks_that_have_nobody_at_the_threshold():
    """The last quarter goes to newcomers only, one each."""
    places = Places(LimitSettings(half_open=100, half_open_per_address=20))
    attackers = [f"192.0.{n}.1" for n in range(4)]
    assert crowd(places, attackers) == 75
    assert crowd(places, attackers) == 0
    visitors = [f"198.51.{n}.1" for n in range(30)]
    assert crowd(places, visitors, each=2) == 25


def test_a_network_keeps_a_reserve_for_its_own_addresses():
    """Two addresses with all they can do do not shut out their neighbours."""
    places = Places(LimitSettings(half_open=1000, half_open_per_address=20))
    assert crowd(places, ["192.0.2.1", "192.0.2.2"]) == 30
    assert places.take("192.0.2.3")


def test_connections_that_logged_in_are_counted_by_network_too():
    """A line with many /64s has so many connections, logged in or not."""
    limits = LimitSettings(connections_per_address=10, connections_per_identity=10_000)
    places = Places(limits)
    inside = 0
    for n in range(1000):
        place = places.take(f"2001:db8:7:{n:x}::1")
        inside += place is not None and places.enter(place, ALICE)
    assert inside == 20
    assert places.take("2001:db8:8::1")


def test_a_network_has_what_is_set_for_it():
    """Where they are set, a network's limits are those, and not twice an address's."""
    places = Places(LimitSettings(half_open_per_network=3))
    assert crowd(places, ["192.0.2.1", "192.0.2.2"]) == 3


def test_one_identity_has_so_many_connections():
    """A person has so many connections, from wherever; others have theirs."""
    places = Places(LimitSettings(connections_per_identity=1))
    one, two, three = places.take(A), places.take(B), places.take(C)
    assert one
    assert two
    assert three
    assert places.enter(one, ALICE)
    assert not places.enter(two, ALICE)
    assert places.enter(three, BOB)
    places.release(one)
    assert places.enter(two, ALICE)


def test_a_place_is_given_back_once():
    """Released twice is released once, and the counts come back to nothing."""
    places = Places(LimitSettings(connections=1))
    place = places.take(A)
    assert place
    assert places.take(B) is None
    places.release(place)
    places.release(place)
    assert places.taken == 0
    assert places.take(B)
    assert places.take(C) is None


def test_limits_fit_the_descriptors_there_are():
    """Nobody is let in for whom there would be no descriptor: each may need twelve."""
    usual = LimitSettings()
    assert fitted(usual, 65536) == usual
    small = fitted(usual, 1024)
    assert small.connections == (1024 - 64) // 12
    assert small.half_open == small.connections // 2
    assert fitted(usual, 100).connections == 3
    assert fitted(usual, 10).half_open == 1


def test_descriptors_are_as_many_as_may_be():
    """A process that starts with few takes as many as its hard limit lets it."""
    script = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 200));"
        "from token_translator.frontdoor.descriptors import raised; print(raised(),"
        "resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "200 (200, 200)\n"


@pytest.fixture
def clock() -> HeldClock:
    """Time that stands still."""
    return HeldClock()


def opened(path: Path, clock: HeldClock, **limits: int) -> Attempts:
    """The counts in that file."""
    return Attempts(path=path / "state.db", limits=LimitSettings(**limits), clock=clock)


def test_failures_close_the_door_to_their_address(tmp_path: Path, clock: HeldClock):
    """After so many failures an address waits until the window has passed; others do not."""
    attempts = opened(tmp_path, clock, failures=3, failure_window=100)
    assert [attempts.failed("a") for _ in range(3)] == [False, False, True]
    assert attempts.closed_for("a") == 100
    assert attempts.closed_for("b") == 0
    clock.advance(60)
    assert attempts.closed_for("a") == 40
    clock.advance(41)
    assert attempts.closed_for("a") == 0
    attempts.close()


def test_throttle_survives_a_restart(tmp_path: Path, clock: HeldClock):
    """What was counted is in a file: a new process goes on counting from there."""
    first = opened(tmp_path, clock, failures=2, logins_per_minute=1)
    first.failed("a")
    first.failed("a")
    assert first.login(ALICE) == 0
    first.close()
    second = opened(tmp_path, clock, failures=2, logins_per_minute=1)
    assert second.closed_for("a") > 0
    assert second.login(ALICE) > 0
    assert second.login(BOB) == 0
    second.close()


def test_logins_of_one_identity_in_a_minute(tmp_path: Path, clock: HeldClock):
    """A person logs in so often in any minute; a refused login does not prolong the wait."""
    attempts = opened(tmp_path, clock, logins_per_minute=2)
    assert attempts.login(ALICE) == 0
    clock.advance(30)
    assert attempts.login(ALICE) == 0
    assert attempts.login(ALICE) == 30
    clock.advance(31)
    assert attempts.login(ALICE) == 0
    attempts.close()


def test_nobody_is_named_in_the_file(tmp_path: Path, clock: HeldClock):
    """People are in the file as fingerprints only."""
    attempts = opened(tmp_path, clock)
    attempts.login(ALICE)
    attempts.close()
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert kept
    assert b"alice" not in kept
    assert b"issuer.example" not in kept


def test_an_attacker_with_many_addresses_fills_no_disk(
    tmp_path: Path, clock: HeldClock, monkeypatch: pytest.MonkeyPatch
):
    """Only so many attempts are kept; the oldest go first."""
    monkeypatch.setattr("token_translator.frontdoor.attempts.MAX_ROWS", 10)
    attempts = opened(tmp_path, clock, failures=1)
    for number in range(50):
        clock.advance(0.01)
        attempts.failed(f"a{number}")
    assert attempts.closed_for("a49") > 0
    assert attempts.closed_for("a30") == 0
    attempts.close()


def test_a_file_of_another_kind_is_refused(tmp_path: Path, clock: HeldClock):
    """What is not our state is not overwritten."""
    (tmp_path / "state.db").write_text("no database at all, and long enough to see that")
    with pytest.raises(SettingsError):
        opened(tmp_path, clock)

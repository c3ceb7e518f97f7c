"""Places and attempts: what a stranger can use up, and what a restart forgets (nothing)."""

from pathlib import Path

import pytest

from headgate.clock import HeldClock
from headgate.identity import Identity
from headgate.settings import SettingsError
from token_translator.frontdoor.attempts import Attempts
from token_translator.frontdoor.limits import LimitSettings, Places, source

ALICE = Identity("https://issuer.example/", "alice")
BOB = Identity("https://issuer.example/", "bob")


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_addresses_are_counted_as_one_holder_has_them(address: str, counted: str):
    """An IPv4 address counts for itself, however written; of IPv6 whoever has one has a /64."""
    assert source(address) == counted


def test_half_open_connections_have_their_own_limit():
    """Who has not logged in takes up the threshold; who has, makes room there."""
    places = Places(LimitSettings(half_open=2))
    first, second = places.take("a"), places.take("b")
    assert first
    assert second
    assert places.take("c") is None
    assert places.enter(first, ALICE)
    assert places.take("c")


def test_one_address_cannot_take_all_places():
    """Each address has a share of the threshold and of the house."""
    places = Places(LimitSettings(half_open_per_address=1, connections_per_address=2))
    first = places.take("a")
    assert first
    assert places.take("a") is None
    assert places.take("b")
    assert places.enter(first, ALICE)
    second = places.take("a")
    assert second
    assert places.enter(second, ALICE)
    assert places.take("a") is None


def test_one_identity_has_so_many_connections():
    """A person has so many connections, from wherever; others have theirs."""
    places = Places(LimitSettings(connections_per_identity=1))
    one, two, three = places.take("a"), places.take("b"), places.take("c")
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
    place = places.take("a")
    assert place
    assert places.take("b") is None
    places.release(place)
    places.release(place)
    assert places.taken == 0
    assert places.take("b")
    assert places.take("c") is None


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

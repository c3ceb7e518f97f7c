"""Who is denied, why, and when the brake stops a reading."""

from datetime import UTC, datetime, timedelta

import pytest

from account_importer.directory import Denial, Entry, Person, SourceUser, State
from account_importer.eligibility import alarm, judge, read
from account_importer.rules import BrakeSettings
from headgate.identity import Identity

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ISS = "https://iam.example/"
HPC = frozenset({"hpc"})


@pytest.mark.parametrize(
    ("user", "denial"),
    [
        (SourceUser("1", "a", active=True, groups=HPC), Denial.NONE),
        (SourceUser("1", "a", active=False, groups=HPC), Denial.INACTIVE),
        (SourceUser("1", "a", active=True, groups=HPC, end_time=NOW), Denial.EXPIRED),
        (
            SourceUser("1", "a", active=True, groups=HPC, end_time=NOW + timedelta(seconds=1)),
            Denial.NONE,
        ),
        (SourceUser("1", "a", active=True), Denial.NOT_ELIGIBLE),
        (SourceUser("1", "a", active=True, groups=frozenset({"hpc-x"})), Denial.NOT_ELIGIBLE),
    ],
)
def test_a_user_is_judged_by_activity_end_and_group(user: SourceUser, denial: Denial) -> None:
    """Inactive, ended and group-less users are denied; a group counts by its whole name."""
    assert judge(user, ["hpc"], NOW) is denial


def person(sub: str) -> Person:
    """Somebody eligible, seen an hour ago."""
    before = NOW - timedelta(hours=1)
    return Person(Identity(ISS, sub), sub, HPC, None, Denial.NONE, before, before, before)


def entry(sub: str, state: State = State.ACTIVE) -> Entry:
    """A registry entry."""
    return Entry(
        Identity(ISS, sub), sub, 20000, 20000, f"/home/{sub}", "/bin/sh", owned=True, state=state
    )


def test_who_is_absent_is_denied_and_strangers_are_not_recorded() -> None:
    """A known person who is gone is absent; somebody who never had a right leaves no trace."""
    known = {person(sub).identity: person(sub) for sub in ("alice", "bob")}
    entries = {entry(sub).identity: entry(sub) for sub in ("alice", "bob")}
    users = [
        SourceUser("alice", "alice", active=True, groups=HPC),
        SourceUser("dave", "dave", active=True),
    ]
    reading = read(iss=ISS, users=users, known=known, entries=entries, groups_any=["hpc"], now=NOW)
    assert {p.identity.sub: p.denial for p in reading.people} == {
        "alice": Denial.NONE,
        "bob": Denial.ABSENT,
    }
    assert [(e.account, why) for e, why in reading.denied] == [("bob", Denial.ABSENT)]
    assert reading.people[0].first_seen == NOW - timedelta(hours=1)


def test_only_active_entries_are_denied() -> None:
    """A blocked or merely reserved entry is not blocked again."""
    known = {person(sub).identity: person(sub) for sub in ("alice", "bob")}
    entries = {e.identity: e for e in (entry("alice", State.BLOCKED), entry("bob", State.RESERVED))}
    reading = read(iss=ISS, users=[], known=known, entries=entries, groups_any=["hpc"], now=NOW)
    assert reading.denied == ()


@pytest.mark.parametrize(
    ("seen", "active", "denied", "stops"),
    [
        (100, 100, 0, False),
        (0, 0, 0, False),
        (0, 1, 1, True),  # empty
        (3, 3, 3, False),  # below the floor
        (100, 100, 20, False),
        (100, 100, 21, True),  # over the percentage
        (9000, 9000, 51, True),  # over the count
    ],
)
def test_the_brake(*, seen: int, active: int, denied: int, stops: bool) -> None:
    """An empty source and mass denial stop; a few at once do not."""
    reason = alarm(seen=seen, active=active, denied=denied, brake=BrakeSettings(), allowed=None)
    assert bool(reason) is stops


def test_an_administrator_lets_a_number_pass() -> None:
    """What is allowed explicitly passes up to that number, also from an empty source."""
    brake = BrakeSettings()
    assert not alarm(seen=0, active=90, denied=90, brake=brake, allowed=90)
    assert alarm(seen=0, active=91, denied=91, brake=brake, allowed=90)

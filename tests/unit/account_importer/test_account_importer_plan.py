"""Plans: desired times actual, pure, hashed, and never adopting what is not ours."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from account_importer.directory import (
    Denial,
    Entry,
    Facts,
    Person,
    State,
    UnixUser,
    mark,
)
from account_importer.plan import Rules, approves, compute, decode, outstanding, reserve
from account_importer.rules import AccountSettings, ApprovalSettings, IdSettings
from headgate.identity import Identity

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ISS = "https://iam.example/"
RULES = Rules("r", IdSettings(first=20000, last=20009), AccountSettings())
EMPTY = Facts()
T = TypeVar("T", Person, Entry)


def person(sub: str, user_name: str = "", *, seconds: int = 0) -> Person:
    """Somebody eligible, seen first so many seconds ago."""
    seen = NOW - timedelta(seconds=seconds)
    groups = frozenset({"hpc"})
    return Person(Identity(ISS, sub), user_name or sub, groups, None, Denial.NONE, seen, NOW, seen)


def by_identity(things: list[T]) -> dict[Identity, T]:
    """Indexed as the registry has them."""
    return {thing.identity: thing for thing in things}


def unix(entry: Entry, **changes: object) -> UnixUser:
    """What the target shows once an entry's account is made."""
    made = UnixUser(entry.account, entry.uid, entry.gid, mark("r", entry.identity), entry.home)
    return replace(made, **changes)


def facts(*users: UnixUser, groups: dict[str, int] | None = None) -> Facts:
    """A target with these users, each with a group of their own."""
    own = {user.name: user.gid for user in users}
    return Facts({user.name: user for user in users}, own if groups is None else groups)


def reserved(*people: Person) -> list[Entry]:
    """Their first reservations on an empty target."""
    made, refusals = reserve(people, {}, EMPTY, 0, RULES)
    assert not refusals
    return made


def test_newcomers_get_names_and_numbers_in_order_of_waiting() -> None:
    """Who waits longest comes first; uid and gid are the same number of our range."""
    made = reserved(person("1", "bob"), person("2", "alice", seconds=5))
    assert [(e.account, e.uid, e.gid) for e in made] == [
        ("alice", 20000, 20000),
        ("bob", 20001, 20001),
    ]


def test_the_plan_creates_what_is_reserved_and_nothing_once_it_is_there() -> None:
    """One create per reservation; with the accounts made and active, the plan is empty."""
    people = [person("1", "alice"), person("2", "bob")]
    entries = reserved(*people)
    plan, refusals = compute(by_identity(people), by_identity(entries), EMPTY, "r")
    assert [c.kind for c in plan.changes] == ["create", "create"]
    assert not refusals
    active = [replace(e, state=State.ACTIVE, applied=State.ACTIVE, version=1) for e in entries]
    there = facts(*(unix(e) for e in active))
    plan, refusals = compute(by_identity(people), by_identity(active), there, "r")
    assert (plan.changes, refusals) == ((), [])


def test_two_newcomers_led_to_one_name_are_both_refused() -> None:
    """Neither gets it by chance; a decision in the settings settles it."""
    people = [person("1", "Alice"), person("2", "alice", seconds=9)]
    made, refusals = reserve(people, {}, EMPTY, 0, RULES)
    assert made == []
    assert len(refusals) == 2
    decided = Rules("r", RULES.ids, AccountSettings(names={"1": "alice2"}))
    made, refusals = reserve(people, {}, EMPTY, 0, decided)
    assert {e.identity.sub: e.account for e in made} == {"1": "alice2", "2": "alice"}


def test_a_name_once_given_is_never_given_to_another() -> None:
    """Neither a reserved, an active nor a tombstone's name is given twice; nor is its number."""
    gone = replace(reserved(person("1", "alice"))[0], state=State.BLOCKED)
    made, refusals = reserve(
        [person("2", "alice"), person("3", "bob")], by_identity([gone]), EMPTY, 0, RULES
    )
    assert [(e.account, e.uid) for e in made] == [("bob", 20001)]
    assert [r.reason for r in refusals] == ["alice was given to somebody else"]


@pytest.mark.parametrize(
    "there",
    [
        facts(UnixUser("alice", 1000, 1000, "", "/home/alice")),
        facts(UnixUser("alice", 20000, 20000, "", "/home/alice")),
        facts(groups={"alice": 500}),
    ],
)
def test_a_local_account_or_group_of_that_name_is_never_adopted(there: Facts) -> None:
    """What somebody else made keeps its name; the newcomer is refused with the reason."""
    made, refusals = reserve([person("1", "alice")], {}, there, 0, RULES)
    assert made == []
    assert "exists already" in refusals[0].reason


def test_numbers_in_use_on_the_target_are_skipped_and_the_end_is_refused() -> None:
    """A foreign uid or gid in our range is passed over; an exhausted range refuses."""
    there = Facts({"x": UnixUser("x", 20000, 100, "", "/x")}, {"y": 20001})
    made, _ = reserve([person("1", "alice")], {}, there, 0, RULES)
    assert made[0].uid == 20002
    made, refusals = reserve([person("1", "alice")], {}, EMPTY, 20010, RULES)
    assert made == []
    assert "no number is left" in refusals[0].reason


def test_after_a_restore_numbers_start_above_everything_that_bears_our_mark() -> None:
    """A counter that went back with a backup gives no number a second time."""
    left = unix(reserved(person("9", "zoe"))[0], uid=20005, gid=20005)
    made, _ = reserve([person("1", "alice")], {}, facts(left), 0, RULES)
    assert made[0].uid == 20006


def test_a_reservation_overtaken_by_the_target_is_made_anew() -> None:
    """A number taken by somebody else since is left unused; the next free one is reserved."""
    alice = person("1", "alice")
    before = by_identity(reserved(alice))
    there = facts(UnixUser("foreign", 20000, 20000, "", "/f"))
    made, refusals = reserve([alice], before, there, 20001, RULES)
    assert [(e.account, e.uid) for e in made] == [("alice", 20001)]
    assert not refusals
    assert reserve([alice], before, EMPTY, 20001, RULES) == ([], [])


def test_what_a_crash_left_half_made_is_finished() -> None:
    """Our own group, or our own account, under a reservation is no conflict: the create stays."""
    alice = person("1", "alice")
    entry = reserved(alice)[0]
    for there in (facts(groups={"alice": 20000}), facts(unix(entry))):
        assert reserve([alice], by_identity([entry]), there, 20001, RULES) == ([], [])
        plan, refusals = compute(by_identity([alice]), by_identity([entry]), there, "r")
        assert [c.kind for c in plan.changes] == ["create"]
        assert not refusals


@pytest.mark.parametrize(
    "changes",
    [{"uid": 20001}, {"gid": 7}, {"mark": ""}, {"mark": "headgate-0"}, {"home": "/root"}],
)
def test_an_account_that_changed_under_us_is_refused_not_repaired(
    changes: dict[str, object],
) -> None:
    """Whatever differs from what we made, the plan leaves it to a person."""
    alice = person("1", "alice")
    entry = replace(reserved(alice)[0], state=State.BLOCKED, applied=State.ACTIVE, version=2)
    there = facts(unix(entry, **changes))
    plan, refusals = compute(by_identity([alice]), by_identity([entry]), there, "r")
    assert plan.changes == ()
    assert len(refusals) == 1


def test_an_account_gone_from_the_target_is_refused() -> None:
    """Somebody removed it by hand: nothing is made again by itself."""
    entry = replace(reserved(person("1", "alice"))[0], state=State.ACTIVE, version=1)
    plan, refusals = compute({}, by_identity([entry]), EMPTY, "r")
    assert plan.changes == ()
    assert "gone from the target" in refusals[0].reason


def test_blocking_comes_before_unblocking_before_creating() -> None:
    """A blocked entry is blocked on the target, one that may act again is unblocked, in order."""
    carol = replace(person("3", "carol"), denial=Denial.INACTIVE)
    people = [person("1", "alice"), person("2", "bob"), carol]
    alice, bob, third = reserved(person("1", "alice"), person("2", "bob"), person("3", "carol"))
    bob = replace(bob, state=State.BLOCKED, applied=State.BLOCKED, version=2)
    third = replace(third, state=State.BLOCKED, applied=State.ACTIVE, version=2, reason="inactive")
    there = facts(unix(bob), unix(third))
    plan, _ = compute(by_identity(people), by_identity([alice, bob, third]), there, "r")
    assert [(c.kind, c.account) for c in plan.changes] == [
        ("block", "carol"),
        ("unblock", "bob"),
        ("create", "alice"),
    ]


def test_a_plan_is_its_hash() -> None:
    """The canonical form decodes to the same plan; any other byte is refused."""
    people = [person("1", "alice")]
    plan, _ = compute(by_identity(people), by_identity(reserved(*people)), EMPTY, "r")
    document = plan.canonical()
    assert decode(document, plan.digest) == plan
    for other in (
        document.replace(b"20000", b"20001"),
        document.replace(b'"create"', b'"unblock"'),
        document + b" ",
        msgspec.json.format(document),
        b"{}",
        b"[",
    ):
        with pytest.raises(ValueError, match="plan"):
            decode(other, plan.digest)


def test_a_change_holds_if_it_would_be_planned_again_or_was_made() -> None:
    """Unchanged: to do. Made: nothing. Source or target moved: drift, by name."""
    people = [person("1", "alice"), person("2", "bob")]
    entries = reserved(*people)
    plan, _ = compute(by_identity(people), by_identity(entries), EMPTY, "r")
    made = replace(entries[0], state=State.ACTIVE, applied=State.ACTIVE, version=1)
    now = by_identity([made, entries[1]])
    fresh, _ = compute(by_identity(people), now, facts(unix(made)), "r")
    assert outstanding(plan, fresh, now) == ([1], [])
    denied = by_identity([people[0], replace(people[1], denial=Denial.INACTIVE)])
    fresh, _ = compute(denied, now, facts(unix(made)), "r")
    todo, drift = outstanding(plan, fresh, now)
    assert todo == []
    assert "create bob" in drift[0]


def test_the_rule_approves_only_what_it_names() -> None:
    """Kinds, number and groups all have to fit."""
    people = [person("1", "alice"), person("2", "bob")]
    plan, _ = compute(by_identity(people), by_identity(reserved(*people)), EMPTY, "r")
    assert approves(plan, ApprovalSettings(kinds=("create",), groups_any=("hpc",)))
    assert not approves(plan, ApprovalSettings(kinds=("create",), max_changes=1))
    assert not approves(plan, ApprovalSettings(kinds=("create",), groups_any=("gpu",)))
    assert not approves(plan, ApprovalSettings(kinds=("block",)))


USER_NAMES = st.sampled_from(["a", "b", "A", "c", "d", "root", "x y", "\u00e9"])


@given(st.lists(st.tuples(st.integers(0, 12), USER_NAMES), max_size=12), st.integers(0, 12))
def test_names_and_numbers_are_unique_and_planning_again_changes_nothing(
    arrivals: list[tuple[int, str]], already: int
) -> None:
    """For any arrivals: no name or number twice, all in range, and a second look is a no-op."""
    people = {str(sub): person(str(sub), name, seconds=sub) for sub, name in arrivals}
    there = facts(UnixUser("b", 20000 + already, 20000 + already, "", "/b"))
    made, refusals = reserve(people.values(), {}, there, 0, RULES)
    assert len({e.account for e in made}) == len({e.uid for e in made}) == len(made)
    assert all(RULES.ids.first <= e.uid <= RULES.ids.last for e in made)
    assert not {e.account for e in made} & {"b", "root"}
    assert {e.identity for e in made} | {r.identity for r in refusals} == {
        p.identity for p in people.values()
    }
    after = max([0, *(e.uid + 1 for e in made)])
    again, _ = reserve(people.values(), by_identity(made), there, after, RULES)
    assert [e for e in again if e.identity in by_identity(made)] == []

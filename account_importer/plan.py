"""Desired times actual gives a plan: ordered changes with a hash, and what was refused."""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec

from account_importer.directory import (
    Change,
    Denial,
    Entry,
    Facts,
    Kind,
    Person,
    State,
    UnixUser,
    mark,
)
from account_importer.names import derive, forbidden
from account_importer.rules import AccountSettings, ApprovalSettings, IdSettings
from headgate.identity import Identity

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Rules:
    """What the settings say about accounts of this realm."""

    realm: str
    ids: IdSettings
    accounts: AccountSettings


@dataclass(frozen=True, slots=True)
class Refusal:
    """A person who is eligible and gets nothing until somebody decides; `reason` is for them."""

    identity: Identity
    user_name: str
    reason: str


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Changes in the order they are made; nothing else is in the hash."""

    v: int
    realm: str
    changes: tuple[Change, ...]

    def canonical(self) -> bytes:
        """The plan as canonical JSON (RFC 8785; there are no numbers in it but integers)."""
        document = msgspec.to_builtins(self)
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return text.encode()

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON, 64 hexadecimal digits."""
        return hashlib.sha256(self.canonical()).hexdigest()


def decode(document: bytes, digest: str) -> Plan:
    """A plan from its canonical JSON, if that is what was hashed.

    Raises:
        ValueError: the hash is another one, or this is not a plan of ours.
    """
    try:
        plan = msgspec.json.decode(document, type=Plan)
    except msgspec.DecodeError as error:
        raise ValueError(f"not a plan: {error}") from error
    if plan.v != FORMAT:
        raise ValueError(f"a plan of format {plan.v}; this is format {FORMAT}")
    if plan.digest != digest or plan.canonical() != document:
        raise ValueError("the plan was changed after it was hashed")
    return plan


def wanted(people: Iterable[Person], entries: Mapping[Identity, Entry]) -> list[Person]:
    """Eligible people whose account is not made yet, longest waiting first."""
    waiting = [
        person
        for person in people
        if person.denial is Denial.NONE
        and (person.identity not in entries or entries[person.identity].state is State.RESERVED)
    ]
    return sorted(
        waiting, key=lambda person: (person.first_seen, person.user_name, person.identity)
    )


def reserve(
    people: Iterable[Person],
    entries: Mapping[Identity, Entry],
    facts: Facts,
    next_id: int,
    rules: Rules,
) -> tuple[list[Entry], list[Refusal]]:
    """Names and ids for people who have none yet, and who gets none and why.

    Two newcomers who are led to one name are both refused: which of them it is, a person says (in
    `accounts.names`). A reservation that the target has meanwhile overtaken is made anew; its
    number stays unused.
    """
    people = wanted(people, entries)
    names, refusals = _names(people, entries, facts, rules)
    ids = _free_ids(entries, facts, next_id, rules)
    made: list[Entry] = []
    for person in people:
        name = names.get(person.identity)
        if name is None:
            continue
        before = entries.get(person.identity)
        if before and before.account == name and not conflict(before, facts, rules.realm):
            if before.shell != _shell(name, rules):
                made.append(replace(before, shell=_shell(name, rules)))
            continue
        number = next(ids, None)
        if number is None:
            reason = f"no number is left in {rules.ids.first}-{rules.ids.last}"
            refusals.append(Refusal(person.identity, person.user_name, reason))
            continue
        made.append(
            Entry(
                identity=person.identity,
                account=name,
                uid=number,
                gid=number,
                home=f"{rules.accounts.home_base}/{name}",
                shell=_shell(name, rules),
                owned=True,
            )
        )
    return made, refusals


def _shell(name: str, rules: Rules) -> str:
    return rules.accounts.shells.get(name, rules.accounts.shell)


def _names(
    people: Iterable[Person], entries: Mapping[Identity, Entry], facts: Facts, rules: Rules
) -> tuple[dict[Identity, str], list[Refusal]]:
    """The name each person is led to, or a refusal."""
    names: dict[Identity, str] = {}
    refusals: list[Refusal] = []
    for person in people:
        try:
            decided = rules.accounts.names.get(person.identity.sub)
            names[person.identity] = decided or derive(person.user_name)
        except ValueError as error:
            refusals.append(Refusal(person.identity, person.user_name, str(error)))
    owner = {entry.account: identity for identity, entry in entries.items()}
    asked = Counter(names.values())
    for person in people:
        name = names.get(person.identity)
        if name is None:
            continue
        reason = forbidden(name, rules.accounts.reserved)
        if not reason and owner.get(name, person.identity) != person.identity:
            reason = f"{name} was given to somebody else"
        if not reason and asked[name] > 1 and owner.get(name) != person.identity:
            reason = f"several people are led to the name {name}"
        if not reason:
            reason = _taken(name, entries.get(person.identity), facts, rules.realm)
        if reason:
            del names[person.identity]
            refusals.append(Refusal(person.identity, person.user_name, reason))
    return names, refusals


def _taken(name: str, entry: Entry | None, facts: Facts, realm: str) -> str:
    """Why the target has no room for that name; what we half made ourselves is no obstacle."""
    if entry and entry.account == name and not conflict(entry, facts, realm):
        return ""
    if name in facts.users:
        return f"a local account {name} exists already"
    group = facts.groups.get(name)
    if group is not None and (entry is None or entry.gid != group):
        return f"a local group {name} exists already"
    return ""


def conflict(entry: Entry, facts: Facts, realm: str) -> str:
    """What on the target contradicts an entry; no account yet, or our own, is no contradiction."""
    user = facts.users.get(entry.account)
    if user is not None and not is_ours(user, entry, realm):
        return f"the account {entry.account} on the target is not the one of the registry"
    if facts.name_of_uid.get(entry.uid, entry.account) != entry.account:
        return f"uid {entry.uid} belongs to somebody else on the target"
    if facts.groups.get(entry.account, entry.gid) != entry.gid:
        return f"the group {entry.account} on the target has another gid"
    if facts.name_of_gid.get(entry.gid, entry.account) != entry.account:
        return f"gid {entry.gid} belongs to another group on the target"
    return ""


def is_ours(user: UnixUser, entry: Entry, realm: str) -> bool:
    """Whether a passwd entry is exactly what we made, or would make, for this registry entry."""
    expected = UnixUser(
        entry.account, entry.uid, entry.gid, mark(realm, entry.identity), entry.home
    )
    return user == expected


def _free_ids(
    entries: Mapping[Identity, Entry], facts: Facts, next_id: int, rules: Rules
) -> Iterator[int]:
    """Numbers never given and not in use, upwards.

    After a restore the counter may be behind: it starts above everything that bears our mark.
    """
    given = [entry.uid for entry in entries.values() if entry.owned]
    marked = [user.uid for user in facts.users.values() if user.mark.startswith("headgate-")]
    inside = [uid for uid in (*given, *marked) if rules.ids.first <= uid <= rules.ids.last]
    uids, gids = set(facts.name_of_uid), set(facts.name_of_gid)
    number = max([rules.ids.first, next_id, *(uid + 1 for uid in inside)])
    while number <= rules.ids.last:
        if number not in uids and number not in gids:
            yield number
        number += 1


def compute(
    people: Mapping[Identity, Person],
    entries: Mapping[Identity, Entry],
    facts: Facts,
    realm: str,
    refused: Collection[Identity] = (),
) -> tuple[Plan, list[Refusal]]:
    """The changes that bring the target to what the source and the registry say.

    `refused` are those `reserve` refused: nothing is made for them, reserved before or not. What
    contradicts the registry on the target is refused, never repaired: a person looks at it.
    """
    changes: list[Change] = []
    refusals: list[Refusal] = []
    for identity, entry in entries.items():
        person = people.get(identity)
        kind = _kind(entry, person)
        fault = _fault(entry, facts, realm) if entry.owned else ""
        name = person.user_name if person else ""
        if fault and (kind or entry.state is not State.RESERVED):
            refusals.append(Refusal(identity, name, fault))
        elif kind and not (kind in {Kind.CREATE, Kind.LINK} and identity in refused):
            changes.append(_change(kind, entry, person, realm))
    order = list(Kind)
    changes.sort(key=lambda change: (order.index(Kind(change.kind)), change.uid, change.sub))
    return Plan(FORMAT, realm, tuple(changes)), refusals


def _kind(entry: Entry, person: Person | None) -> Kind | None:
    """What is to be done about an entry, if anything."""
    allowed = person is not None and person.denial is Denial.NONE
    if entry.state is State.BLOCKED:
        if allowed:
            return Kind.UNBLOCK
        return Kind.BLOCK if entry.owned and entry.applied is not State.BLOCKED else None
    if entry.state is State.RESERVED and allowed:
        return Kind.CREATE if entry.owned else Kind.LINK
    return None


def _fault(entry: Entry, facts: Facts, realm: str) -> str:
    if entry.state is not State.RESERVED and entry.account not in facts.users:
        return f"the account {entry.account} is gone from the target"
    return conflict(entry, facts, realm)


def _change(kind: Kind, entry: Entry, person: Person | None, realm: str) -> Change:
    return Change(
        kind=kind.value,
        iss=entry.identity.iss,
        sub=entry.identity.sub,
        account=entry.account,
        uid=entry.uid,
        gid=entry.gid,
        home=entry.home,
        shell=entry.shell,
        mark=mark(realm, entry.identity) if entry.owned else "",
        version=entry.version,
        reason=entry.reason,
        user_name=person.user_name if person else "",
        groups=tuple(sorted(person.groups)) if person else (),
    )


def outstanding(
    plan: Plan, fresh: Plan, entries: Mapping[Identity, Entry]
) -> tuple[list[int], list[str]]:
    """Which changes of an approved plan are still to be made, and what drifted since.

    A change holds if it would be planned again now, word for word, or if it has been made.
    """
    todo: list[int] = []
    drift: list[str] = []
    again = set(fresh.changes)
    for seq, change in enumerate(plan.changes):
        if change in again:
            todo.append(seq)
        elif not _made(change, entries.get(change.identity)):
            drift.append(f"{change.kind} {change.account}: the source or the target has changed")
    return todo, drift


def _made(change: Change, entry: Entry | None) -> bool:
    if entry is None or (entry.account, entry.uid) != (change.account, change.uid):
        return False
    if change.kind == Kind.BLOCK and entry.version == change.version:
        return entry.applied is State.BLOCKED
    return entry.version > change.version


def approves(plan: Plan, rule: ApprovalSettings) -> bool:
    """Whether the site's rule approves this plan without a person."""
    if len(plan.changes) > rule.max_changes:
        return False
    return all(
        change.kind in rule.kinds
        and (
            not rule.groups_any
            or change.kind == Kind.BLOCK
            or not set(rule.groups_any).isdisjoint(change.groups)
        )
        for change in plan.changes
    )

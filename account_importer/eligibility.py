"""Who may have an account, who is denied and why, and when so many denials stop everything."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from account_importer.directory import Denial, Entry, Person, SourceUser, State
from account_importer.rules import BrakeSettings
from headgate.identity import Identity


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reading of the source leads to: people as they are now, and entries to block."""

    people: tuple[Person, ...]
    denied: tuple[tuple[Entry, Denial], ...]


def judge(user: SourceUser, groups_any: Collection[str], now: datetime) -> Denial:
    """Why this user may not act, or `Denial.NONE`."""
    if not user.active:
        return Denial.INACTIVE
    if user.end_time is not None and user.end_time <= now:
        return Denial.EXPIRED
    if not user.groups.intersection(groups_any):
        return Denial.NOT_ELIGIBLE
    return Denial.NONE


def read(
    *,
    iss: str,
    users: Iterable[SourceUser],
    known: Mapping[Identity, Person],
    entries: Mapping[Identity, Entry],
    groups_any: Collection[str],
    now: datetime,
) -> Reading:
    """Compare a whole reading with what is known; people who are gone are denied as absent.

    Who never had a right to an account is not recorded at all.
    """
    people: dict[Identity, Person] = {}
    for user in users:
        identity = Identity(iss, user.id)
        denial = judge(user, groups_any, now)
        before = known.get(identity)
        if before is None and denial is not Denial.NONE:
            continue
        eligible_since = before.eligible_since if before else None
        people[identity] = Person(
            identity=identity,
            user_name=user.user_name,
            groups=user.groups,
            end_time=user.end_time,
            denial=denial,
            first_seen=before.first_seen if before else now,
            last_seen=now,
            eligible_since=eligible_since or (now if denial is Denial.NONE else None),
            refusal=before.refusal if before else "",
        )
    for identity, person in known.items():
        if identity not in people and identity.iss == iss:
            people[identity] = replace(person, denial=Denial.ABSENT)
    denied = tuple(
        (entry, people[identity].denial)
        for identity, entry in sorted(entries.items())
        if entry.state is State.ACTIVE
        and identity in people
        and people[identity].denial is not Denial.NONE
    )
    return Reading(tuple(people.values()), denied)


def alarm(*, seen: int, active: int, denied: int, brake: BrakeSettings, allowed: int | None) -> str:
    """Why this reading must not be believed without an administrator, or an empty string.

    `seen` users in the reading, `active` entries before it, `denied` by it; `allowed` is what an
    administrator said may be denied this time.
    """
    if allowed is not None:
        return "" if denied <= allowed else f"{denied} would be denied, {allowed} are allowed"
    if not seen and active:
        return f"the source is empty and {active} accounts are active"
    if denied > brake.max_count:
        return f"{denied} would be denied at once, the brake is at {brake.max_count}"
    percent = 100 * denied / active if active else 0
    if denied > brake.floor and percent > brake.max_percent:
        return (
            f"{denied} of {active} would be denied at once, the brake is at {brake.max_percent:g} %"
        )
    return ""

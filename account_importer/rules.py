"""The site's rules, as its settings spell them: brake, numbers, accounts, mapping, approval."""

import msgspec

from headgate.settings import Section


class BrakeSettings(Section, frozen=True):
    """When a reading would deny so many at once that somebody has to look first.

    More than `max_count` identities, or more than `floor` and than `max_percent` of the active
    ones. An empty source always brakes.
    """

    max_count: int = 50
    max_percent: float = 20
    floor: int = 3


class IdSettings(Section, frozen=True):
    """The range of uids and gids that belongs to headgate; counted upwards, never used again."""

    first: int = 20_000
    last: int = 29_999


class AccountSettings(Section, frozen=True):
    """How accounts look. `shells` is by account name; `names` gives subjects a name by decision."""

    home_base: str = "/home"
    shell: str = "/bin/bash"
    shells: dict[str, str] = msgspec.field(default_factory=dict)
    names: dict[str, str] = msgspec.field(default_factory=dict)
    reserved: tuple[str, ...] = ()


class MappingSettings(Section, frozen=True):
    """Mapping mode: the accounts that exist already.

    `users` maps subjects to account names; `account` is for everybody else ("": nobody else).
    `uid`, `gid` and `home` are looked up where they are not given, and belong to `account`.
    """

    account: str = ""
    uid: int | None = None
    gid: int | None = None
    home: str = ""
    users: dict[str, str] = msgspec.field(default_factory=dict)


class ApprovalSettings(Section, frozen=True):
    """The rule that approves a plan by itself; without kinds, a person does.

    A plan passes if all its changes are of these kinds, there are at most `max_changes`, and each
    user has one of `groups_any` (empty: any group will do).
    """

    kinds: tuple[str, ...] = ()
    max_changes: int = 20
    groups_any: tuple[str, ...] = ()

"""What the importer talks about: people in the source, accounts here, and the ports to both."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Protocol

import msgspec

from headgate.identity import Identity


class Denial(StrEnum):
    """Why an identity may not act; the value is the registry's `reason`."""

    NONE = ""
    INACTIVE = "inactive"
    EXPIRED = "expired"
    ABSENT = "absent"
    NOT_ELIGIBLE = "not_eligible"


class State(StrEnum):
    """Where a registry entry stands; a reserved one has a name and ids, and no account yet."""

    RESERVED = "reserved"
    ACTIVE = "active"
    BLOCKED = "blocked"


class Kind(StrEnum):
    """What a change does, in the order a plan has them: denying comes first."""

    BLOCK = "block"
    UNBLOCK = "unblock"
    CREATE = "create"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class SourceUser:
    """A user as the source shows it; `id` is the subject, group names have no leading slash."""

    id: str
    user_name: str
    active: bool
    groups: frozenset[str] = frozenset()
    end_time: datetime | None = None


@dataclass(frozen=True, slots=True)
class Person:
    """What the last reading of the source said about an identity, and why it is denied, if so.

    `eligible_since` is when this identity was first seen with a right to an account.
    """

    identity: Identity
    user_name: str
    groups: frozenset[str]
    end_time: datetime | None
    denial: Denial
    first_seen: datetime
    last_seen: datetime
    eligible_since: datetime | None = None
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of the registry, for ever: names and ids of a row are never given to anybody else.

    `applied` is what the target was told last (RESERVED: nothing yet). `version` grows by one with
    each change of `state`. `owned` is false where the account belongs to the site (mapping mode).
    """

    identity: Identity
    account: str
    uid: int
    gid: int
    home: str
    shell: str
    owned: bool
    state: State = State.RESERVED
    applied: State = State.RESERVED
    reason: str = ""
    version: int = 0


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One step of a plan: everything that is needed to check it and to carry it out.

    `version` is the registry entry's before the change; it binds the change to that moment.
    `user_name` and `groups` tell the person who approves; nothing is decided by them.
    """

    kind: str
    iss: str
    sub: str
    account: str
    uid: int
    gid: int
    home: str
    shell: str
    mark: str
    version: int
    reason: str
    user_name: str
    groups: tuple[str, ...]

    @property
    def identity(self) -> Identity:
        """Whose account it is."""
        return Identity(self.iss, self.sub)


@dataclass(frozen=True, slots=True)
class UnixUser:
    """A passwd entry (passwd(5)); `mark` is the first field of its GECOS."""

    name: str
    uid: int
    gid: int
    mark: str
    home: str


@dataclass(frozen=True)
class Facts:
    """The target's users and groups, as NSS and the files have them."""

    users: Mapping[str, UnixUser] = field(default_factory=dict)
    groups: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def name_of_uid(self) -> dict[int, str]:
        """Who has a uid."""
        return {user.uid: name for name, user in self.users.items()}

    @cached_property
    def name_of_gid(self) -> dict[int, str]:
        """Which group has a gid."""
        return {gid: name for name, gid in self.groups.items()}


class SourceError(Exception):
    """The source could not be read whole; nothing may be concluded from what was read."""


class TargetError(Exception):
    """A change could not be carried out; the others can go on."""


class TargetRefusedError(Exception):
    """The target's own policy forbids a plan; nothing of it was done."""

    def __init__(self, reasons: Iterable[str]) -> None:
        self.reasons = tuple(reasons)
        super().__init__("; ".join(self.reasons))


class Source(Protocol):
    """Where identities come from."""

    async def users(self) -> list[SourceUser]:
        """Everybody, from one consistent reading. Raises SourceError."""

    async def absent(self, subject: str) -> bool:
        """Whether the source says, asked for this one, that there is none. Raises SourceError."""


class Target(Protocol):
    """Where accounts are made. `begin` comes once for each plan, before its changes."""

    async def observe(self, names: Iterable[str], ids: Iterable[int]) -> Facts:
        """Everything it knows, these names and ids asked for one by one as well."""

    async def begin(self, plan: bytes, digest: str) -> None:
        """Check the whole plan (canonical JSON and its SHA-256). Raises TargetRefusedError."""

    async def carry_out(self, seq: int) -> None:
        """Do change number `seq` of the plan begun; doing it twice is doing it once.

        Raises:
            TargetError: it was not done; the message says why.
        """


def mark(realm: str, identity: Identity) -> str:
    """The ownership mark in an account's GECOS: says whose it is without telling who it is."""
    text = f"{realm}\0{identity.iss}\0{identity.sub}"
    return "headgate-" + hashlib.sha256(text.encode()).hexdigest()[:16]

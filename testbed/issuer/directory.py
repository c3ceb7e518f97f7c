"""The people, groups and clients of the issuer, and what a test may do to them at run time."""

import uuid
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from headgate.clock import Clock, rfc3339
from headgate.settings import Section

_NAMESPACE = uuid.UUID("2b0f6d5c-5a0e-5f4b-9c63-4d1f0c6d1c11")


class SshKey(Section, frozen=True):
    """A public key a user uploaded; `value` is the base64 part."""

    display: str
    value: str
    fingerprint: str = ""
    primary: bool = False


class User(Section, frozen=True):
    """A user record; `sub` (empty: derived from the user name) is also the SCIM id."""

    username: str
    sub: str = ""
    given_name: str = ""
    family_name: str = ""
    email: str = ""
    groups: tuple[str, ...] = ()
    active: bool = True
    end_time: datetime | None = None
    service_account: bool = False
    ssh_keys: tuple[SshKey, ...] = ()

    @property
    def id(self) -> str:
        """The UUID of this user: given, or the same for the same user name on every start."""
        return self.sub or str(uuid.uuid5(_NAMESPACE, self.username))

    @property
    def full_name(self) -> str:
        """Given and family name, else the user name."""
        return f"{self.given_name} {self.family_name}".strip() or self.username


class Client(Section, frozen=True):
    """A registered client (RFC 7591's terms); without a secret it is a public one.

    A redirect URI of a loopback address is good with any port (RFC 8252, section 7.3). Unless
    `reuse_refresh_tokens` (IAM's name and default), each use of one gives another and ends it.
    """

    client_id: str
    secret: str = ""
    grants: tuple[str, ...] = ("urn:ietf:params:oauth:grant-type:device_code", "refresh_token")
    scopes: tuple[str, ...] = ("openid", "profile", "email", "offline_access")
    redirect_uris: tuple[str, ...] = ()
    reuse_refresh_tokens: bool = True


class UnknownUserError(KeyError):
    """There is no user of that name or id."""


class Directory:
    """Users in the order they were made, as IAM lists them; each with its last change."""

    def __init__(self, *, users: Iterable[User], clients: Iterable[Client], clock: Clock) -> None:
        self._clock = clock
        self._users: dict[str, User] = {}
        self._modified: dict[str, str] = {}
        self._clients = {client.client_id: client for client in clients}
        for user in users:
            self.put(user)

    def users(self) -> list[User]:
        """All users, oldest first."""
        return list(self._users.values())

    def groups(self) -> list[str]:
        """All group names that a user has."""
        return sorted({group for user in self._users.values() for group in user.groups})

    def user(self, username: str) -> User:
        """By user name; raises UnknownUserError."""
        try:
            return self._users[username]
        except KeyError:
            raise UnknownUserError(username) from None

    def by_id(self, sub: str) -> User:
        """By subject; raises UnknownUserError."""
        for user in self._users.values():
            if user.id == sub:
                return user
        raise UnknownUserError(sub)

    def modified(self, user: User) -> str:
        """When the record changed last, RFC 3339."""
        return self._modified[user.username]

    def put(self, user: User) -> None:
        """Add a user, or replace the one of that name."""
        self._users[user.username] = user
        self._modified[user.username] = rfc3339(self._clock.now())

    def change(self, username: str, **fields: object) -> User:
        """Replace some fields of a user; raises UnknownUserError."""
        changed = msgspec.structs.replace(self.user(username), **fields)
        self.put(changed)
        return changed

    def delete(self, username: str) -> None:
        """Remove a user; raises UnknownUserError."""
        self.user(username)
        del self._users[username]
        del self._modified[username]

    def clear(self) -> None:
        """Remove everybody."""
        self._users.clear()
        self._modified.clear()

    def client(self, client_id: str) -> Client | None:
        """By id, if registered."""
        return self._clients.get(client_id)

    def usable(self, user: User) -> bool:
        """Whether that user may log in now: active, and endTime not passed."""
        ended = user.end_time is not None and _aware(user.end_time) <= self._clock.now()
        return user.active and not ended


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def group_id(name: str) -> str:
    """The UUID of a group, the same on every start."""
    return str(uuid.uuid5(_NAMESPACE, "group:" + name))

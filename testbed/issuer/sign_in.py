"""Signing in at the test issuer: a user name is enough, and a tick is the second factor."""

import html
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from multidict import MultiMapping

from headgate.clock import Clock
from testbed.issuer.directory import Directory, UnknownUserError, User

SINGLE = "https://refeds.org/profile/sfa"
MULTI = "https://refeds.org/profile/mfa"
ACR_VALUES = (SINGLE, MULTI)

FIELDS = """
<p><label>User name <input name="username" list="users" required></label>
<datalist id="users">{users}</datalist></p>
<p><label><input type="checkbox" name="second_factor" value="yes"{ticked}>
with a second factor</label></p>
<p>This issuer is for tests: it asks for no password.</p>
"""


class SignInRefusedError(Exception):
    """Nobody is signed in; the message is for the page, `status` for the answer."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Session:
    """A person who signed in; `at` is epoch seconds."""

    username: str
    acr: str
    at: int

    def satisfies(self, acr_values: tuple[str, ...], max_age: int | None, now: int) -> bool:
        """Whether this is strong and fresh enough (OpenID Connect Core, section 3.1.2.1)."""
        fresh = max_age is None or now - self.at <= max_age
        return fresh and (not acr_values or self.acr in acr_values)


def sign_in(
    form: MultiMapping[Any], *, directory: Directory, clock: Clock, acr_values: Iterable[str]
) -> Session:
    """Who the posted form says it is.

    Raises:
        SignInRefusedError: nobody known, a suspended user, or too weak for `acr_values`.
    """
    user = _user(str(form.get("username", "")), directory)
    acr = MULTI if form.get("second_factor") == "yes" else SINGLE
    wanted = tuple(acr_values)
    if wanted and acr not in wanted:
        raise SignInRefusedError("The service asks for a second factor.", 403)
    return Session(user.username, acr, int(clock.now().timestamp()))


def _user(username: str, directory: Directory) -> User:
    try:
        user = directory.user(username)
    except UnknownUserError as error:
        raise SignInRefusedError("There is no such user.", 400) from error
    if not directory.usable(user):
        raise SignInRefusedError("This user is suspended.", 403)
    return user


def fields(directory: Directory, acr_values: Iterable[str] = ()) -> str:
    """The form's fields, as HTML."""
    users = "".join(f'<option value="{html.escape(u.username)}">' for u in directory.users())
    return FIELDS.format(users=users, ticked=" checked" if MULTI in acr_values else "")

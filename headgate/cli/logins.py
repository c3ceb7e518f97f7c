"""Saved logins: one private file per site with its access token and refresh token."""

import hashlib
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from headgate.cli import claims, private_files
from headgate.cli.failures import CommandFailure

EXPIRY_MARGIN = timedelta(seconds=30)


class _Token(msgspec.Struct, frozen=True, kw_only=True):
    """An access token. `expires_at` None: the issuer did not say."""

    access_token: str
    expires_at: datetime | None = None

    def __repr__(self) -> str:
        # A token in a traceback or a log must not be one.
        return f"{type(self).__name__}(expires_at={self.expires_at})"

    def fresh(self, now: datetime, margin: timedelta = EXPIRY_MARGIN) -> bool:
        """Whether it still lives that long; by default, enough for one more request."""
        return self.expires_at is None or now + margin < self.expires_at


class Exchanged(_Token, frozen=True, kw_only=True):
    """A token of the same login that the issuer gave for one audience more (RFC 8693)."""

    audience: str

    __repr__ = _Token.__repr__


class Login(_Token, frozen=True, kw_only=True):
    """What a login or a refresh gave, and the tokens that were exchanged for it since.

    `person` None: a login of a version that did not keep it.
    """

    refresh_token: str = ""
    person: claims.Person | None = None
    exchanged: tuple[Exchanged, ...] = ()

    __repr__ = _Token.__repr__

    def whose(self) -> claims.Person:
        """Whose login it is."""
        return self.person or claims.person(self.access_token)

    def for_audience(self, audience: str) -> Exchanged | None:
        """The token that was got for that audience, if there is one."""
        return next((token for token in self.exchanged if token.audience == audience), None)

    def with_exchanged(self, token: Exchanged) -> "Login":
        """The login with a token for one audience, in place of an older one."""
        others = tuple(t for t in self.exchanged if t.audience != token.audience)
        return msgspec.structs.replace(self, exchanged=(*others, token))


class Logins:
    """The logins of one person on this machine; files are 0600 in a directory of mode 0700."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "logins"

    def path(self, url: str) -> Path:
        """The file of a site's login."""
        return self._directory / (hashlib.sha256(url.encode()).hexdigest()[:32] + ".json")

    def load(self, url: str) -> Login | None:
        """The login of a site, or None."""
        content = private_files.read(self.path(url))
        if content is None:
            return None
        try:
            return msgspec.json.decode(content, type=Login)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CommandFailure(
                f"The saved login {self.path(url)} is damaged.",
                advice=f"Run: headgate login {url}",
            ) from error

    def save(self, url: str, login: Login) -> None:
        """Keep a login, in place of the last one."""
        private_files.write(self.path(url), msgspec.json.encode(login))

    def remove(self, url: str) -> bool:
        """Forget a login; False if there was none."""
        return private_files.remove(self.path(url))

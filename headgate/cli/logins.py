"""Saved logins: one private file per site with its access token and refresh token."""

import hashlib
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from headgate.cli import private_files
from headgate.cli.failures import CommandFailure

EXPIRY_MARGIN = timedelta(seconds=30)


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """What a device flow or a refresh gave. `expires_at` None: the issuer did not say."""

    access_token: str
    expires_at: datetime | None = None
    refresh_token: str = ""

    def __repr__(self) -> str:
        # A login in a traceback or a log must not be one.
        return f"Login(expires_at={self.expires_at})"

    def fresh(self, now: datetime) -> bool:
        """Whether the access token still lives long enough for one more request."""
        return self.expires_at is None or now + EXPIRY_MARGIN < self.expires_at


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

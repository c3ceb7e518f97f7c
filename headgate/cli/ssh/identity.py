"""The SSH identities of this machine: one key and certificate per site and realm."""

import contextlib
import hashlib
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from headgate.cli import private_files
from headgate.cli.claims import Person
from headgate.cli.failures import CommandFailure
from headgate.cli.places import Places
from headgate.cli.sites import SavedSite
from headgate.cli.ssh import files
from headgate.cli.ssh.agent import Agent, AgentError
from headgate.cli.ssh.wire import Certificate, WireError, blob
from headgate.cli.wording import moment

_LATEST = 253402300799
"""The last second of the year 9999, since the epoch."""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What `identity.json` says; `account` is the local account that the certificate opens.

    `person` is whose token it was got with, `login` the file of the site's login, for what ssh
    runs. Both are empty in a file of an older version: nobody knows whose that one is.
    """

    site: SavedSite
    realm: str
    account: str
    person: Person | None = None
    login: str = ""


class Identity:
    """The files of one identity, and the agent that may have its key."""

    def __init__(self, directory: Path, places: Places) -> None:
        self.directory = directory
        self._environ = places.environ

    def path(self, name: str) -> Path:
        """One of its files."""
        return self.directory / name

    @property
    def about(self) -> About | None:
        """Whose it is; None: nothing was got yet."""
        content = private_files.read(self.path(files.ABOUT))
        try:
            return msgspec.json.decode(content, type=About) if content else None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CommandFailure(
                f"{self.path(files.ABOUT)} is damaged.",
                advice="Remove it, then: headgate ssh-renew",
            ) from error

    @property
    def certificate(self) -> Certificate | None:
        """The certificate, if there is one."""
        return files.read_certificate(str(self.directory))

    def ready(self, now: datetime) -> bool:
        """Whether a stock ssh can use it as it is, for some time."""
        return files.ready(str(self.directory), self._environ, now.timestamp())

    def where(self) -> str:
        """Where its key is: `agent`, `file`, or nowhere."""
        certificate = self.certificate
        return files.held(str(self.directory), certificate, self._environ) if certificate else ""

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold it while it is renewed: many ssh may start at once."""
        with private_files.lock(self.path(files.ABOUT)):
            yield

    def key(self) -> Ed25519PrivateKey:
        """The key to certify: the one in the file, else a new one.

        A file's key stays: a running ssh reads it later than the certificate that it goes with.
        """
        content = private_files.read(self.path(files.KEY))
        if content is not None and self._agent() is None:
            with contextlib.suppress(ValueError, TypeError):
                key = serialization.load_ssh_private_key(content, password=None)
                if isinstance(key, Ed25519PrivateKey):
                    return key
        return Ed25519PrivateKey.generate()

    def keep(self, key: Ed25519PrivateKey, line: str, about: About, now: datetime) -> str:
        """Keep a key with its new certificate, in place of the last one: `agent` or `file`.

        Raises:
            CommandFailure: the certificate is not for this key.
        """
        certificate = _checked(line, key)
        place = self._into_agent(key, certificate, about, now)
        if place == "agent":
            private_files.remove(self.path(files.KEY))
        else:
            private_files.write(self.path(files.KEY), _private(key))
        private_files.write(self.path(files.PUBLIC), public_line(key).encode() + b"\n")
        private_files.write(self.path(files.CERTIFICATE), line.encode() + b"\n")
        private_files.write(self.path(files.ABOUT), msgspec.json.encode(about))
        private_files.write(self.path(files.ASKED), b"")  # a new one is not revoked
        return place

    def _into_agent(
        self, key: Ed25519PrivateKey, certificate: Certificate, about: About, now: datetime
    ) -> str:
        agent = self._agent()
        if agent is None:
            return "file"
        try:
            seconds = int(certificate.remaining(now.timestamp()))
            comment = f"headgate {about.account} at {about.site.url}"
            agent.add(key.private_bytes_raw(), certificate.blob, comment=comment, seconds=seconds)
            listed = agent.identities()
            if certificate.blob not in listed or certificate.key not in listed:
                return "file"
            self._out_of(agent, keep=certificate)
        except AgentError:
            return "file"
        return "agent"

    def _out_of(self, agent: Agent, keep: Certificate | None = None) -> None:
        """Take what we put in before out: old certificates would use up a server's patience."""
        old = self.certificate
        if old is None or (keep and keep.blob == old.blob):
            return
        agent.remove(old.blob)
        if keep is None or keep.key != old.key:
            agent.remove(old.key)

    def _agent(self) -> Agent | None:
        return Agent.local(self._environ)

    def forget(self) -> None:
        """Remove key and certificate, from the agent too; whose it was, and hosts, stay known.

        So that ssh, still told to ask us, names the login that is missing and works after it.
        """
        if agent := self._agent():
            with contextlib.suppress(AgentError):
                self._out_of(agent)
        for name in (files.KEY, files.PUBLIC, files.CERTIFICATE, files.ASKED):
            private_files.remove(self.path(name))

    def until(self) -> datetime | None:
        """When the certificate ends."""
        certificate = self.certificate
        if certificate is None:
            return None
        return datetime.fromtimestamp(min(certificate.valid_before, _LATEST), UTC)

    def sentence(self, now: datetime) -> str:
        """The certificate for a person: account and end, in local time; empty: there is none."""
        about, until = self.about, self.until()
        if about is None or until is None:
            return ""
        verb = "until" if until > now else "ended"
        return f"{about.account}, {verb} {moment(until, now)}"


class Identities:
    """All identities of this machine, below the state directory."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._root = places.state / "ssh"

    def get(self, url: str, realm: str) -> Identity:
        """The identity for a site and a realm (empty: the site's first), made or not."""
        host = re.sub(r"[^a-z0-9.-]", "-", url.partition("://")[2].partition("/")[0].lower())
        digest = hashlib.sha256(f"{url}#{realm}".encode()).hexdigest()[:8]
        return Identity(self._root / f"{host}-{digest}", self._places)

    def at(self, directory: Path) -> Identity:
        """The identity in a directory that a configuration file names."""
        return Identity(directory, self._places)

    def all(self) -> list[Identity]:
        """Every identity that has been got."""
        found = sorted(self._root.iterdir()) if self._root.is_dir() else []
        identities = (Identity(path, self._places) for path in found if path.is_dir())
        return [identity for identity in identities if identity.about is not None]

    def of(self, url: str) -> list[Identity]:
        """Those of one site."""
        return [i for i in self.all() if (about := i.about) and about.site.url == url]


def public_line(key: Ed25519PrivateKey) -> str:
    """The public key as OpenSSH writes it."""
    return (
        key.public_key()
        .public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        .decode("ascii")
    )


def _private(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )


def _checked(line: str, key: Ed25519PrivateKey) -> Certificate:
    try:
        certificate = Certificate(blob(line.encode()))
        ours = certificate.key == blob(public_line(key).encode())
    except WireError as error:
        raise CommandFailure(f"The token translator sent no certificate: {error}.") from error
    if not ours or "\n" in line.strip():
        raise CommandFailure("The token translator sent a certificate for another key.")
    if certificate.valid_before > _LATEST:
        raise CommandFailure("The token translator sent a certificate that never ends.")
    return certificate

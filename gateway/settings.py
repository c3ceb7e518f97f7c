"""What an administrator may set for the gateway, and why."""

from collections.abc import Iterator
from datetime import datetime
from typing import Literal
from urllib.parse import urlsplit

from gateway.runner.udocker import UdockerSettings
from gateway.sessions.local import LocalSettings
from gateway.sessions.ssh import SshSettings
from headgate.oidc import IssuerSettings, check_issuers
from headgate.service import ListenSettings
from headgate.settings import Section


class ServiceSettings(Section, frozen=True):
    """Another service of the suite: where it listens, which is also its name in credentials."""

    url: str


class MemorySettings(Section, frozen=True):
    """The simulated cluster's socket, for the embedded site."""

    socket: str


class ClusterSettings(Section, frozen=True):
    """One cluster. `directory` is where jobs get theirs: {user}, {home} and {id} are filled in.

    {id} must be a whole component of it: a right to one job is a right to its directory alone.

    `files_days` after a job's end its directory is removed, as the user; without it, never.

    `realm` names the user base the cluster belongs to. `poll_seconds` is the interval of the one
    query that watches all jobs. Exactly one of `ssh` and `local` says how sessions are opened;
    `slurm_conf` (empty: the system's) or `memory` says where the cluster is read.
    """

    name: str
    realm: str
    directory: str = "{home}/.headgate/jobs/{id}"
    default_queue: str | None = None
    poll_seconds: float = 2.0
    settle_seconds: float = 30.0
    senders: int = 16
    files_days: float | None = None
    slurm_conf: str = ""
    memory: MemorySettings | None = None
    ssh: SshSettings | None = None
    local: LocalSettings | None = None
    udocker: UdockerSettings | None = None

    def __post_init__(self) -> None:
        """Refuse what could only fail later.

        Raises:
            ValueError: naming the key.
        """
        if "{id}" not in self.directory.split("/"):
            raise ValueError(
                "directory: {id} must be a component of it, as in /scratch/{user}/{id}"
            )
        try:
            self.directory.format(user="", home="", id="")
        except (KeyError, IndexError, ValueError) as error:
            raise ValueError("directory: only {user}, {home} and {id} are filled in") from error
        if self.poll_seconds <= 0:
            raise ValueError("poll_seconds: must be more than 0")
        if self.files_days is not None and self.files_days <= 0:
            raise ValueError("files_days: must be more than 0")
        if self.senders < 1:
            raise ValueError("senders: must be 1 or more")


class LoginSettings(Section, frozen=True):
    """What `GET /v1` tells people's tools: where to get a token and which audiences to ask for."""

    issuer: str
    client_id: str
    scopes: tuple[str, ...] = ("openid", "profile", "offline_access")
    audiences: tuple[str, ...] = ()


class LoginNodeSettings(Section, frozen=True):
    """A login node as people reach it, where that differs from how the gateway does."""

    host: str
    realm: str
    port: int = 22


class PeopleSettings(Section, frozen=True):
    """What `GET /v1` tells people's tools about SSH, where they reach it by other addresses.

    Without them: the addresses that the gateway uses itself, unless only its own machine knows
    them. A token for the translator is asked for by its address here, among `login`'s audiences.
    """

    token_translator: str = ""
    login_nodes: tuple[LoginNodeSettings, ...] | None = None


class NoticeSettings(Section, frozen=True):
    """A sentence for everybody, in `GET /v1`, until a moment (a TOML date and time with a zone)."""

    text: str
    until: datetime | None = None

    def __post_init__(self) -> None:
        """Refuse a moment that is none.

        Raises:
            ValueError: it has no zone.
        """
        if self.until is not None and self.until.tzinfo is None:
            raise ValueError("until: say the zone, as in 2026-12-01T08:00:00Z")


class Settings(Section, frozen=True):
    """The gateway's TOML. `url` is what users' tokens must be meant for.

    `max_upload_bytes` is what one file brought to a job's directory may have.

    `metrics` is the operators' own listener (metrics, health in detail); without it there is none.
    """

    url: str
    instance: str
    peer_key: str
    database: str
    issuers: tuple[IssuerSettings, ...]
    token_translator: ServiceSettings
    registry: ServiceSettings
    clusters: tuple[ClusterSettings, ...]
    login: tuple[LoginSettings, ...] = ()
    people: PeopleSettings = PeopleSettings()
    notices: tuple[NoticeSettings, ...] = ()
    max_upload_bytes: int = 256 * 1024 * 1024
    listen: ListenSettings = ListenSettings()
    metrics: ListenSettings | None = None
    log_level: Literal["debug", "info", "warning", "error", "critical"] = "info"

    def __post_init__(self) -> None:
        """Refuse what could only fail later.

        Raises:
            ValueError: naming what is wrong.
        """
        check_issuers(self.issuers)
        for name, url in self._urls():
            _check_url(name, url)
        names = [cluster.name for cluster in self.clusters]
        if not names or len(set(names)) < len(names):
            raise ValueError("clusters: name at least one, and each once")
        for listen in filter(None, (self.listen, self.metrics)):
            if not 0 <= listen.port < 1 << 16:
                raise ValueError("port: must be from 0 to 65535")

    def _urls(self) -> Iterator[tuple[str, str]]:
        yield "url", self.url
        yield "token_translator.url", self.token_translator.url
        yield "registry.url", self.registry.url
        yield from (("issuers.url", issuer.url) for issuer in self.issuers)
        if self.people.token_translator:
            yield "people.token_translator", self.people.token_translator

    def published_token_translator(self) -> str:
        """Where people get certificates; empty: nowhere that they could reach."""
        own = self.token_translator.url
        return self.people.token_translator or (own if self._reachable(_host(own)) else "")

    def published_login_nodes(self) -> tuple[LoginNodeSettings, ...]:
        """Where people log in: as set, else each cluster's own login node, once."""
        if self.people.login_nodes is not None:
            return self.people.login_nodes
        nodes = [
            LoginNodeSettings(host=c.ssh.host, port=c.ssh.port, realm=c.realm)
            for c in self.clusters
            if c.ssh is not None and self._reachable(c.ssh.host)
        ]
        return tuple(dict.fromkeys(nodes))

    def _reachable(self, host: str) -> bool:
        """Whether who reaches the gateway reaches that, too, as far as addresses tell."""
        return _loopback(_host(self.url)) or not _loopback(host)


def _check_url(name: str, url: str) -> None:
    """Raise `ValueError` unless it is the address of an HTTP service."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or parts.username or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError(f"{name}: must be an address such as https://host.example.org")


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


def _loopback(host: str) -> bool:
    return host in {"localhost", "::1"} or host.startswith("127.")

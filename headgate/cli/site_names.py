"""What a site may name: its own host, what is below it, and what the person has accepted.

A gateway says where tokens are had, for whom, and which hosts are the site's. What it says is
believed of itself alone: else one site could collect tokens, or answer, for another.
"""

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from yarl import URL

from headgate.cli.failures import CommandFailure

KNOWN_SCOPES = frozenset(
    {
        *("openid", "profile", "email", "offline_access"),
        *("groups", "wlcg", "wlcg.groups", "aarc", "entitlements", "voperson_id"),
        *("headgate.ssh", "headgate.files"),
        *("compute.create", "compute.read", "compute.modify", "compute.cancel"),
    }
)
"""Scopes that a site may ask for: who somebody is, and what our own services know."""
FOREIGN = "foreign_name"
"""The code of a failure: a site named what it may not speak for."""
_PERSONS = re.compile(r"eduperson_[a-z_]{1,64}")
_NAME = re.compile(r"[!-~]{1,512}")
_PATTERN = re.compile(r"[a-z0-9.:_*?-]{1,255}")
_WITH_PORT = re.compile(r"\[([^\[\]]+)\]:[0-9*?]{1,5}")


@dataclass(frozen=True, slots=True)
class Domain:
    """The names that a site may speak for.

    `host` is its gateway's. `accepted` are audiences, hosts and `*.domain` patterns that the person
    has accepted, `others` the hosts of the person's other sites: what is theirs is not this one's.
    """

    host: str
    accepted: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def has_host(self, host: str) -> bool:
        """Whether a host is the site's."""
        name = host.lower().rstrip(".")
        if name == self.host or name in map(str.lower, self.accepted):
            return True
        return any(
            _below(name, top) and not any(_within(name, other) for other in self._closer(top))
            for top in self._tops()
        )

    def has_service(self, name: str) -> bool:
        """Whether a service's address, or the audience of tokens for it, is the site's."""
        if name in self.accepted:
            return True
        return bool(_NAME.fullmatch(name)) and "\\" not in name and self.has_host(host_of(name))

    def has_pattern(self, pattern: str) -> bool:
        """Whether all hosts that a pattern of known_hosts (sshd(8)) matches are the site's."""
        text = pattern.lower()
        if inner := _WITH_PORT.fullmatch(text):
            text = inner[1]
        if not _PATTERN.fullmatch(text):
            return False
        if not re.search(r"[*?]", text):
            return self.has_host(text)
        tail = re.split(r"[*?]", text)[-1]
        above = tail.removeprefix(".")
        if above == tail:
            return False
        return any(
            _within(above, top)
            and not any(_within(other, above) or _within(above, other) for other in closer)
            for top in self._tops()
            for closer in [self._closer(top)]
        )

    def _tops(self) -> list[str]:
        """The domains that are the site's, with what is below."""
        patterns = [word.lower() for word in self.accepted if word.startswith("*.")]
        own = [] if _is_address(self.host) else [self.host]
        return own + [pattern.removeprefix("*.") for pattern in patterns]

    def _closer(self, top: str) -> list[str]:
        """Hosts of other sites in such a domain: what is below them is theirs."""
        return [other for other in self.others if _below(other, top)]


def host_of(address: str) -> str:
    """The host of an address, as it is compared; empty: it is no address of a service."""
    try:
        url = URL(address)
        host = url.raw_host or ""
    except ValueError:
        return ""
    return host.lower().rstrip(".") if url.scheme in {"http", "https"} else ""


def same_address(one: str, other: str) -> bool:
    """Whether two addresses are of one service."""
    try:
        parts = [
            (url.scheme, host_of(str(url)), url.port, url.raw_path_qs.rstrip("/"))
            for url in map(URL, (one, other))
        ]
    except ValueError:
        return False
    return parts[0] == parts[1]


def check_resource(url: str, named: str, domain: Domain) -> None:
    """Refuse a service that calls itself something else than what was asked (RFC 9728, 3.3).

    Raises:
        CommandFailure: tokens for `named` would be sent to `url`.
    """
    if not named or same_address(url, named) or named in domain.accepted:
        return
    raise CommandFailure(
        f"The service at {url} calls itself {named}; nothing was sent to it.",
        advice=f"If that is the site you mean, run: headgate login {shlex.quote(named)}",
        code=FOREIGN,
    )


def check_services(
    url: str, named: Iterable[str], domain: Domain, *, by_person: bool = False
) -> None:
    """Refuse services and audiences that are not the site's own; the site or the person named them.

    Raises:
        CommandFailure: naming them, and how the person accepts them.
    """
    foreign = [name for name in dict.fromkeys(named) if name and not domain.has_service(name)]
    if not foreign:
        return
    names = ", ".join(foreign)
    asked = f"{url} asks for tokens for {names}, which is not its own."
    raise CommandFailure(
        f"{names} is not known as a service of {url}: no token for it." if by_person else asked,
        advice=f"If you know it to be the same site's: {accepting(url, foreign)}",
        code=FOREIGN,
    )


def check_scopes(url: str, asked: Sequence[str], named: Sequence[str]) -> None:
    """Refuse scopes that no site of ours needs; `named` are the person's own.

    Raises:
        CommandFailure: naming them, and how the person asks for them.
    """
    strange = [s for s in asked if not (s in KNOWN_SCOPES or s in named or _PERSONS.fullmatch(s))]
    if not strange:
        return
    options = "".join(f" --scope {shlex.quote(scope)}" for scope in strange)
    raise CommandFailure(
        f"{url} asks for the right to {', '.join(strange)}, which headgate does not need.",
        advice=f"If you want it to have that: headgate login {url}{options}",
        code=FOREIGN,
    )


def accepting(url: str, names: Iterable[str]) -> str:
    """What a person runs to accept names."""
    options = "".join(f" --accept {shlex.quote(name)}" for name in names)
    return f"headgate login {url}{options}"


def _below(name: str, domain: str) -> bool:
    return bool(domain) and name.endswith("." + domain)


def _within(name: str, domain: str) -> bool:
    return name == domain or _below(name, domain)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True

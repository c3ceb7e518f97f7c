"""What an administrator sets about the login nodes: which there are, and their certificates."""

import re
from typing import Annotated

import msgspec

from headgate.settings import Section

PATTERN = re.compile(
    r"!?[A-Za-z0-9*?][A-Za-z0-9.:*?_-]{0,254}|\[[A-Za-z0-9*?][A-Za-z0-9.:*?_-]*\]:\d{1,5}"
)
KNOWN = re.compile(r"[!-~]{1,1024} (ssh|ecdsa|sk)-[a-z0-9@.-]{1,64} [A-Za-z0-9+/]{16,8192}={0,2}")
"""One key of one host (sshd(8)): no `@cert-authority`, which vouches for names."""
LOGIN = re.compile(r"[A-Za-z0-9*?][A-Za-z0-9.*?_-]{0,254}")


class LoginHost(Section, frozen=True):
    """A login node as people name it to ssh, or a pattern of them, and its port."""

    host: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 22

    def __post_init__(self) -> None:
        """Refuse what would be more than a word in an ssh_config.

        Raises:
            ValueError: naming it.
        """
        if not LOGIN.fullmatch(self.host):
            raise ValueError(f"hosts: {self.host!r} is not a host's name")


class HostSettings(Section, frozen=True):
    """The login nodes, for `known_hosts`, ssh_config and host certificates.

    `vouched` are the patterns (sshd(8), known_hosts) of the hosts that the host authorities'
    certificates are believed for: never more than the site's own names. `known_hosts` are lines of
    hosts without a certificate. `login` are the nodes people log in to. `certificate_lifetime` in
    seconds: how long a host certificate is good.
    """

    vouched: tuple[str, ...] = ()
    known_hosts: tuple[str, ...] = ()
    login: tuple[LoginHost, ...] = ()
    certificate_lifetime: Annotated[int, msgspec.Meta(ge=3600, le=400 * 86400)] = 30 * 86400

    def __post_init__(self) -> None:
        """Refuse patterns that are none, or that would vouch for the whole world.

        Raises:
            ValueError: naming the pattern.
        """
        for line in self.known_hosts:
            if not KNOWN.fullmatch(line):
                raise ValueError(f"hosts: known_hosts: {line[:80]!r} is no key of a host")
        for pattern in self.vouched:
            if not PATTERN.fullmatch(pattern):
                raise ValueError(f"hosts: vouched: {pattern!r} is not a pattern of host names")
            if not re.search(r"[A-Za-z0-9]", pattern.rpartition("]")[0] or pattern):
                raise ValueError(f"hosts: vouched: {pattern!r} is every host there is")

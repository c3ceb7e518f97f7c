"""What an administrator sets for logins by token at the nodes' own PAM."""

import ipaddress
import re
from typing import Annotated

import msgspec

from headgate.settings import Section

REQUESTS_KEPT = 90 * 86400
HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,253}")


class PamNode(Section, frozen=True):
    """A node with a PAM module: its name, and the addresses (or networks) it calls from."""

    name: str
    addresses: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]

    def __post_init__(self) -> None:
        """Refuse what is no name or no network.

        Raises:
            ValueError: naming it.
        """
        if not HOST.fullmatch(self.name):
            raise ValueError(f"pam: {self.name!r} is not a host's name")
        for address in self.addresses:
            ipaddress.ip_network(address)


class PamSettings(Section, frozen=True):
    """The contract of existing PAM modules and wrappers; off where this section is not there.

    `realm` is that of the nodes. `change_by_get`: the GET forms of what changes something write a
    request down; without it there are only POST ones. `scopes` are what wrappers are told to ask
    for. At most `per_minute` one-time passwords for a person in a minute. Requests for an account
    are kept `requests_kept` seconds after the last.
    """

    realm: str
    nodes: Annotated[tuple[PamNode, ...], msgspec.Meta(min_length=1)]
    description: str = "Login nodes"
    change_by_get: bool = True
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    per_minute: Annotated[int, msgspec.Meta(ge=1)] = 10
    requests_kept: Annotated[int, msgspec.Meta(ge=3600)] = REQUESTS_KEPT

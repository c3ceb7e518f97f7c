"""What has to be known of a login node: the site's numbers, and where its files are."""

import ipaddress
import re
from typing import Annotated, Literal

import msgspec

from headgate.settings import Section
from token_translator.grants import ACCOUNT, REALM
from token_translator.seals import PROGRAM

URL = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?")
NAME = re.compile(r"[a-z_][a-z0-9_.-]{0,31}")
PATHS = (
    "session_program",
    "user_ca",
    "revoked_keys",
    "principals_program",
    "principals_folder",
    "krl_fetch",
)

Uid = Annotated[int, msgspec.Meta(ge=500, le=4_000_000_000)]


class Node(Section, frozen=True):
    """A node's TOML, or the options of the same names.

    `uid_first` to `uid_last` is the importer's range; `linked` are accounts outside of it that
    were explicitly linked. `tokens` is the translator's URL as nodes reach it. From the addresses
    (or networks) of `gateways` comes the session program alone, from those of `front_doors` what
    people do. `second_factor`: people need one on this node. `people_group`: a group of all
    accounts of the range, whose members get in with no other key. `principals` says whether sshd
    asks a command or reads files. `session_digests` are accepted besides this release's own
    (SHA-256, hex). `krl_max_age` in seconds. `host_certificate` empty: the node has none.
    """

    realm: str
    uid_first: Uid
    uid_last: Uid
    linked: tuple[str, ...] = ()
    host_sets: tuple[str, ...] = ()
    tokens: str = ""
    gateways: tuple[str, ...] = ()
    front_doors: tuple[str, ...] = ()
    second_factor: bool = False
    people_group: str = ""
    principals: Literal["command", "files"] = "command"
    principals_program: str = "/usr/libexec/headgate/headgate-principals"
    principals_user: str = "nobody"
    principals_folder: str = "/etc/ssh/headgate_principals"
    session_program: str = "/usr/libexec/headgate/headgate-session"
    session_digests: tuple[str, ...] = ()
    user_ca: str = "/etc/ssh/headgate_user_ca.pub"
    revoked_keys: str = "/etc/headgate/krl/revoked_keys"
    krl_fetch: str = "/usr/libexec/headgate/headgate-krl-fetch"
    krl_user: str = "headgate-krl"
    krl_max_age: Annotated[int, msgspec.Meta(ge=60)] = 3600
    host_certificate: str = ""

    def __post_init__(self) -> None:
        """Refuse what would not stay one word in sshd's file or the shell's.

        Raises:
            ValueError: naming the key.
        """
        _must(re.fullmatch(REALM, self.realm), "realm", self.realm)
        for host_set in self.host_sets:
            _must(re.fullmatch(REALM, host_set), "host_sets", host_set)
        _must(self.uid_first <= self.uid_last, "uid_last", self.uid_last)
        for name in PATHS:
            _must(PROGRAM.fullmatch(getattr(self, name)), name, getattr(self, name))
        if self.host_certificate:
            known = PROGRAM.fullmatch(self.host_certificate)
            _must(
                known and self.host_certificate.endswith("-cert.pub"),
                "host_certificate",
                self.host_certificate,
            )
        if self.tokens:
            _must(URL.fullmatch(self.tokens), "tokens", self.tokens)
        for account in self.linked:
            _must(re.fullmatch(ACCOUNT, account) and account != "root", "linked", account)
        for name in ("principals_user", "krl_user"):
            _must(NAME.fullmatch(getattr(self, name)), name, getattr(self, name))
        if self.people_group:
            _must(NAME.fullmatch(self.people_group), "people_group", self.people_group)
        for address in (*self.gateways, *self.front_doors):
            ipaddress.ip_network(address)
        for digest in self.session_digests:
            _must(re.fullmatch(r"[0-9a-f]{64}", digest), "session_digests", digest)

    @property
    def host_key(self) -> str:
        """The private key that the host certificate is of."""
        return self.host_certificate.removesuffix("-cert.pub")

    def principals_of(self, account: str, uid: int) -> tuple[str, ...]:
        """The principals whose certificates open an account here; none for root, staff, services.

        That of the realm, and one for each host set (decision 0006).
        """
        ours = self.uid_first <= uid <= self.uid_last or account in self.linked
        if uid == 0 or not ours or not re.fullmatch(ACCOUNT, account):
            return ()
        places = (self.realm, *(f"{self.realm}@{host_set}" for host_set in self.host_sets))
        return tuple(f"hg:{place}:{account}" for place in places)


def _must(condition: object, name: str, value: object) -> None:
    if not condition:
        raise ValueError(f"{name}: {value!r} cannot be used")

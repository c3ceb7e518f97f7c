"""Which hosts an identity is for, and how their keys are checked: never not at all."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from headgate.cli.failures import CommandFailure
from headgate.cli.site_names import Domain

HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]{0,254}")
PATTERN = re.compile(r"[A-Za-z0-9*?][A-Za-z0-9.:_*?-]{0,254}")
ACCOUNT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_KNOWN = re.compile(
    r"(?:@(?:cert-authority|revoked) )?[!-~]{1,1024} (?:ssh|ecdsa|sk)-[a-z0-9@.-]{1,64} "
    r"[A-Za-z0-9+/]{16,16384}={0,2}(?: [ -~]{0,256})?"
)
DEFAULT_PORT = 22


@dataclass(frozen=True, slots=True)
class Node:
    """A host, or a pattern of them; `vouched`: the site publishes its key."""

    host: str
    port: int = DEFAULT_PORT
    vouched: bool = False


@dataclass(frozen=True, slots=True)
class Use:
    """How a stock ssh uses an identity at a node; paths are absolute.

    `strict`: the person's own configuration refuses keys that nobody knows.
    """

    node: Node
    account: str
    directory: str
    known_hosts: str = ""
    strict: bool = False

    def identity(self) -> dict[str, str]:
        """ssh_config(5): the certificate and its key, and no other."""
        key = f"{self.directory}/id_ed25519"
        return {
            "IdentityFile": quoted(key),
            "CertificateFile": quoted(f"{key}-cert.pub"),
            "IdentitiesOnly": "yes",
            # The agent that we put the key in; one with a plain key would keep it for good.
            "IdentityAgent": "SSH_AUTH_SOCK",
            "AddKeysToAgent": "no",
        }

    def checking(self) -> dict[str, str]:
        """ssh_config(5): whose host keys count. Those that the site publishes need no asking.

        Never less than the person's own setting, and never not at all: ours comes first, and wins.
        """
        known = ["~/.ssh/known_hosts", "~/.ssh/known_hosts2"]
        known += [quoted(self.known_hosts)] if self.known_hosts else []
        strict = self.strict or (self.node.vouched and bool(self.known_hosts))
        return {
            "UserKnownHostsFile": " ".join(known),
            "StrictHostKeyChecking": "yes" if strict else "ask",
        }

    def place(self) -> dict[str, str]:
        """ssh_config(5): account and port."""
        if not ACCOUNT.fullmatch(self.account):
            raise CommandFailure(f"{self.account!r} is no account's name.")
        port = {} if self.node.port == DEFAULT_PORT else {"Port": str(self.node.port)}
        return {"User": self.account, **port}


def quoted(path: str) -> str:
    """A path as a word of ssh_config(5).

    Raises:
        CommandFailure: it has characters that OpenSSH would read as something else.
    """
    if re.search(r'["\\\x00-\x1f\x7f]|\$\{', path):
        raise CommandFailure(f"{path!r} cannot be written into an SSH configuration.")
    return '"' + path.replace("%", "%%") + '"'


def known_hosts(text: str) -> tuple[str, ...]:
    """The lines of a known_hosts file that are such lines (sshd(8)); anything else is left out."""
    return tuple(line for line in map(str.strip, text.splitlines()) if _KNOWN.fullmatch(line))


def own(lines: Sequence[str], domain: Domain) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The lines as far as they are about hosts of the site, and the names that are not.

    A hashed name could be anybody's. `@revoked` takes trust away, and stays as it is.
    """
    kept, foreign = list[str](), list[str]()
    for line in lines:
        marker, _, rest = line.partition(" ") if line.startswith("@") else ("", "", line)
        names, _, key = rest.partition(" ")
        patterns = names.split(",")
        ours = [p for p in patterns if p.startswith("!") or domain.has_pattern(p)]
        if marker == "@revoked":
            kept.append(line)
            continue
        foreign += [p for p in patterns if p not in ours]
        if any(not p.startswith("!") for p in ours):
            kept.append(" ".join(filter(None, (marker, ",".join(ours), key))))
    return tuple(kept), tuple(dict.fromkeys(foreign))


def vouched(lines: Sequence[str], host: str, port: int) -> bool:
    """Whether one of these lines is about the host: by name or pattern, or hashed, for any."""
    name = host if port == DEFAULT_PORT else f"[{host}]:{port}"
    for line in lines:
        fields = line.split()
        names = fields[1] if fields[0].startswith("@") else fields[0]
        if fields[0] != "@revoked" and _covers(names.split(","), name.lower()):
            return True
    return False


def _covers(patterns: Sequence[str], name: str) -> bool:
    found = False
    for pattern in patterns:
        plain = re.escape(pattern.lstrip("!").lower()).replace(r"\*", ".*").replace(r"\?", ".")
        if pattern.startswith("|1|") or re.fullmatch(plain, name):
            if pattern.startswith("!"):
                return False
            found = True
    return found

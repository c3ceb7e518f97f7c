"""The files of one SSH identity, and whether a stock ssh can use them as they are.

Standard library alone and little of it: every `ssh` of the person waits for `ready`.
"""

import json
import os
import time
from collections.abc import Mapping, Sequence

from headgate.cli import token_variables
from headgate.cli.ssh.agent import Agent, AgentError
from headgate.cli.ssh.wire import Certificate, WireError, blob

KEY = "id_ed25519"
PUBLIC = KEY + ".pub"
CERTIFICATE = KEY + "-cert.pub"
KNOWN_HOSTS = "known_hosts"
ABOUT = "identity.json"
ASKED = "revocations_asked"
"""Written when the site last said, or did not say, that the certificate is not revoked."""
ASK_SECONDS = 60.0
"""How long that is good for, where ssh asks."""
QUICK = ("ssh-renew", "--quiet")
_MAX_BYTES = 64 * 1024


def nothing_to_do(arguments: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether this is the command line of `Match exec`, and the certificate is good as it is."""
    quick = tuple(arguments[:2]) == QUICK and len(arguments) == len(QUICK) + 1
    if not quick or not ready(arguments[2], environ, now := time.time()):
        return False
    return asked(arguments[2], now, ASK_SECONDS) and ours(arguments[2], environ)


def asked(directory: str, now: float, seconds: float) -> bool:
    """Whether the site was asked that lately whether it has revoked the certificate."""
    try:
        written = os.lstat(os.path.join(directory, ASKED)).st_mtime  # noqa: PTH118 - as below
    except OSError:
        return False
    return 0 <= now - written < seconds


def ours(directory: str, environ: Mapping[str, str]) -> bool:
    """Whether the certificate is the saved login's own, and no token is given that counts more."""
    try:
        about = json.loads(_read(directory, ABOUT))
        person, login = about["person"], about["login"]
        try:
            saved = json.loads(_read("", login))
        except FileNotFoundError:
            return bool(person) and not token_variables.given(environ, logged_in=False)
        same = bool(person) and saved["person"] == person
    except (OSError, WireError, ValueError, KeyError, TypeError):
        return False  # the whole command says what is wrong
    return same and not token_variables.given(environ, logged_in=True)


def ready(directory: str, environ: Mapping[str, str], now: float) -> bool:
    """Whether the certificate there will last, and its key is at hand: in a file, or the agent."""
    certificate = read_certificate(directory)
    if certificate is None or certificate.worn(now):
        return False
    return held(directory, certificate, environ) != ""


def held(directory: str, certificate: Certificate, environ: Mapping[str, str]) -> str:
    """Where the certificate's key is: `file`, `agent`, or nowhere (empty)."""
    try:
        if blob(_read(directory, PUBLIC)) != certificate.key:
            return ""
        if os.path.exists(os.path.join(directory, KEY)):  # noqa: PTH110, PTH118 - pathlib costs ssh 4 ms
            return "file"
        agent = Agent(environ.get("SSH_AUTH_SOCK", ""))
        return "agent" if certificate.key in agent.identities() else ""
    except (OSError, WireError, AgentError):
        return ""


def read_certificate(directory: str) -> Certificate | None:
    """The certificate there; None if there is none that can be read."""
    try:
        return Certificate(blob(_read(directory, CERTIFICATE)))
    except (OSError, WireError):
        return None


def _read(directory: str, name: str) -> bytes:
    path = os.path.join(directory, name)  # noqa: PTH118 - pathlib costs ssh 4 ms
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise WireError("somebody else's file")
        return os.read(descriptor, _MAX_BYTES)
    finally:
        os.close(descriptor)

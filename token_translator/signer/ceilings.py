"""What the signer never goes beyond, whoever asks: held against a captured HTTP process."""

import ipaddress
import os
import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import msgspec

from headgate.settings import Section, load
from token_translator import wire
from token_translator.grants import KEY_ID, PRINCIPAL, SFTP_COMMAND, Extension, Grant
from token_translator.keys import DEFAULT_TYPES
from token_translator.seals import ONLY, PROGRAM
from token_translator.signer.files import require_unwritable

SLACK = timedelta(seconds=5)
"""Between the asking process's look at the clock and ours."""
MAX_BACKDATE = timedelta(seconds=120)
MAX_PRINCIPALS = 4
MAX_HOSTNAMES = 16
MAX_SHOWN = 80
MAX_NETWORKS = 64
HOSTNAME = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*"
)
"""A host's name in lower case, or an IPv4 address; IPv6 addresses are read as such."""

MAX_LIFETIME = 30 * 86400
MAX_HOST_LIFETIME = 400 * 86400
"""Seconds: no ceiling was ever above these."""

Seconds = Annotated[int, msgspec.Meta(ge=1, le=MAX_LIFETIME)]
HostSeconds = Annotated[int, msgspec.Meta(ge=60, le=MAX_HOST_LIFETIME)]


class CeilingError(Exception):
    """A grant that goes beyond a ceiling; the message says which."""


class Ceilings(Section, frozen=True):
    """A root-owned file. `principals` are shell patterns, each below `hg:`; lifetimes in seconds.

    `hostnames` are the shell patterns of names that host certificates are for; none: there are
    no host certificates. A star stands for dots too, and is never all of a pattern.

    A certificate has a force-command of `session_programs` (then no extension at all), with
    `--only …` after it for at most `max_sealed_lifetime`; or, if `logins` says so, none or sshd's
    own sftp.
    """

    session_programs: tuple[str, ...] = ()
    logins: bool = True
    principals: tuple[str, ...] = ("hg:*",)
    extensions: frozenset[Extension] = frozenset({"permit-pty"})
    key_types: frozenset[str] = frozenset(DEFAULT_TYPES)
    max_lifetime: Seconds = 12 * 3600
    max_sealed_lifetime: Seconds = 300
    hostnames: tuple[str, ...] = ()
    max_host_lifetime: HostSeconds = 90 * 86400
    per_minute: Annotated[int, msgspec.Meta(ge=1)] = 600

    def __post_init__(self) -> None:
        """Refuse words that would allow nothing, or more than they seem to.

        Raises:
            ValueError: naming the word.
        """
        for program in self.session_programs:
            if not PROGRAM.fullmatch(program):
                raise ValueError(f"session_programs: {program!r} is not an absolute path")
        for pattern in self.principals:
            if not pattern.startswith("hg:"):
                raise ValueError(f"principals: {pattern!r} does not begin with hg:")
        for pattern in self.hostnames:
            if not re.search(r"[a-z0-9]", pattern):
                raise ValueError(f"hostnames: {pattern!r} is every name there is")


def read_ceilings(path: Path, *, embedded: bool) -> Ceilings:
    """The ceilings of a file that the asking process cannot have written.

    It and the directories above it belong to root. On the embedded site, where one uid runs
    everything and nothing can be kept from it, they may belong to that uid.

    Raises:
        SettingsError: it is somebody else's, open to others, or not a ceilings file.
    """
    owners = {0, os.geteuid()} if embedded else {0}
    require_unwritable(path, frozenset(owners))
    return load(path, Ceilings)


def check(ceilings: Ceilings, grant: Grant, key_id: str, *, now: datetime) -> None:
    """Return if the grant is within the ceilings.

    Raises:
        CeilingError: the first thing that is not.
    """
    _check_principals(ceilings, grant)
    _check_command(ceilings, grant)
    sealed = " --only " in grant.force_command
    most = "max_sealed_lifetime" if sealed else "max_lifetime"
    _check_times((grant.valid_after, grant.valid_before), (most, getattr(ceilings, most)), now)
    if not KEY_ID.fullmatch(key_id):
        raise CeilingError("the key-id is not an audit string")
    if len(grant.source_addresses) > MAX_NETWORKS:
        raise CeilingError(f"{len(grant.source_addresses)} source addresses")
    for network in grant.source_addresses:
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            raise CeilingError("a source address is not a network") from error


def check_host(ceilings: Ceilings, request: wire.SignHost, *, now: datetime) -> None:
    """Return if a host certificate is within the ceilings.

    Raises:
        CeilingError: the first thing that is not.
    """
    if not 1 <= len(request.hostnames) <= MAX_HOSTNAMES:
        raise beyond("hostnames", f"{len(request.hostnames)} names", f"1 to {MAX_HOSTNAMES}")
    for name in request.hostnames:
        allowed = any(fnmatchcase(name, pattern) for pattern in ceilings.hostnames)
        if not _is_hostname(name) or not allowed:
            raise beyond("hostnames", name, ceilings.hostnames)
    _check_times(
        (request.valid_after, request.valid_before),
        ("max_host_lifetime", ceilings.max_host_lifetime),
        now,
    )
    if not KEY_ID.fullmatch(request.key_id):
        raise CeilingError("the key-id is not an audit string")


def _is_hostname(name: str) -> bool:
    try:
        return str(ipaddress.ip_address(name)) == name
    except ValueError:
        return HOSTNAME.fullmatch(name) is not None


def _check_principals(ceilings: Ceilings, grant: Grant) -> None:
    # None at all would be "anybody" to some releases of sshd.
    if not 1 <= len(grant.principals) <= MAX_PRINCIPALS:
        raise beyond("principals", f"{len(grant.principals)} of them", f"1 to {MAX_PRINCIPALS}")
    for principal in grant.principals:
        allowed = any(fnmatchcase(principal, pattern) for pattern in ceilings.principals)
        if not PRINCIPAL.fullmatch(principal) or not allowed or principal.endswith(":root"):
            raise beyond("principals", principal, ceilings.principals)


def _check_command(ceilings: Ceilings, grant: Grant) -> None:
    if len(set(grant.extensions)) < len(grant.extensions):
        raise CeilingError("an extension twice")
    program, only, rest = grant.force_command.partition(" --only ")
    if not grant.force_command:
        if not ceilings.logins:
            raise beyond("logins", "a certificate without force-command", "none of these")
        more = set(grant.extensions) - ceilings.extensions
        if more:
            raise beyond("extensions", min(more), sorted(ceilings.extensions))
        return
    if grant.force_command == SFTP_COMMAND:
        # Less than a login, and allowed with it.
        if not ceilings.logins:
            raise beyond("logins", SFTP_COMMAND, "no logins")
    elif program not in ceilings.session_programs or (only and not ONLY.fullmatch(rest)):
        raise beyond("session_programs", grant.force_command, ceilings.session_programs)
    if grant.extensions:
        raise beyond("extensions", grant.extensions[0], "none beside a force-command")


def beyond(ceiling: str, asked: object, allowed: object) -> CeilingError:
    """The error of one ceiling, by its name in the file: what was asked, and what is allowed."""
    if isinstance(allowed, Iterable) and not isinstance(allowed, str):
        allowed = ", ".join(map(str, allowed)) or "nothing"
    return CeilingError(f"{ceiling}: asked {_short(asked)}, allowed {_short(allowed)}")


def _short(words: object) -> str:
    """As a sentence for logs and for whoever asked has room for it."""
    text = str(words)
    text = text if text.isascii() and text.isprintable() else ascii(text)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _check_times(validity: tuple[datetime, datetime], most: tuple[str, int], now: datetime) -> None:
    (valid_after, valid_before), (name, seconds) = validity, most
    if valid_before <= now:
        raise CeilingError("a certificate that has expired already")
    if valid_before > now + timedelta(seconds=seconds) + SLACK:
        raise beyond(name, f"{(valid_before - now).total_seconds():.0f} s", f"{seconds} s")
    if not now - MAX_BACKDATE <= valid_after <= now + SLACK:
        raise CeilingError("a validity that does not begin about now")


class Rate:
    """At most so many requests a minute, in a steady flow with a burst of one minute's worth."""

    def __init__(self, per_minute: int, *, now: float) -> None:
        self._per_second = per_minute / 60
        self._most = float(per_minute)
        self._left = self._most
        self._at = now

    def take(self, now: float, many: int = 1) -> bool:
        """Whether so many more are within the rate; `now` in monotonic seconds."""
        self._left = min(self._most, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < many:
            return False
        self._left -= many
        return True

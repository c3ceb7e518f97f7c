"""A node's host certificate: whether it is the host key's, for its names, and for how long yet."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from headgate.command import CommandError, run
from token_translator.keys import KeyRefusedError, accept
from token_translator.nodes.findings import Finding, failed, ok, warning

SECONDS = 10.0
SOON = timedelta(days=14)
FOREVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Shown:
    """What `ssh-keygen -L` shows of a certificate; keys as fingerprints."""

    kind: str
    key: str
    authority: str
    names: tuple[str, ...]
    valid_before: datetime


async def judged(
    certificate: str, hostname: str, *, now: datetime, known: Sequence[str] | None = None
) -> list[Finding]:
    """The certificate beside a host key; `known` are the translator's host authorities' lines."""
    check = "host certificate's file"
    try:
        environment = {"TZ": "UTC", "LC_ALL": "C", "PATH": "/usr/bin:/bin"}
        argv = ("ssh-keygen", "-L", "-f", certificate)
        shown = shown_in(
            (await run(argv, timeout=SECONDS, env=environment)).checked().stdout.decode()
        )
        listed = ("ssh-keygen", "-l", "-f", certificate.removesuffix("-cert.pub") + ".pub")
        key = (await run(listed, timeout=SECONDS)).checked().stdout.decode().split()[1]
    except (CommandError, ValueError, IndexError) as error:
        return [failed(check, f"{certificate}: {error}")]
    found = [ok(check, certificate) if shown.kind == "host" else failed(check, "no host's")]
    if shown.key != key:
        found.append(failed("host certificate's key", f"it is of {shown.key}, the host's is {key}"))
    if hostname not in shown.names:
        names = ", ".join(shown.names) or "(none)"
        detail = f"{hostname} is not among {names}; is it how people name the node? (--hostname)"
        found.append(failed("host certificate's names", detail))
    found.append(_in_time(shown, now))
    if known is not None and shown.authority not in _fingerprints(known):
        detail = f"{shown.authority} is not the site's host authority"
        found.append(failed("host certificate's authority", detail))
    return found


def shown_in(text: str) -> Shown:
    """What `ssh-keygen -L` printed, in UTC.

    Raises:
        ValueError: it is nothing of the kind.
    """
    kind = re.search(r"Type: \S+ (user|host) certificate", text)
    key = re.search(r"Public key: \S+ (SHA256:\S+)", text)
    authority = re.search(r"Signing CA: \S+ (SHA256:\S+)", text)
    valid = re.search(r"Valid: (?:from \S+ to (\S+)|forever|before (\S+)|after \S+)", text)
    if not (kind and key and authority and valid):
        raise ValueError("ssh-keygen shows no certificate")
    until = valid[1] or valid[2]
    names = re.search(r"Principals: ?(.*?)\n\s*Critical Options:", text, re.DOTALL)
    return Shown(
        kind=kind[1],
        key=key[1],
        authority=authority[1],
        names=tuple(names[1].split()) if names and "(none)" not in names[1] else (),
        valid_before=(
            datetime.fromisoformat(until).replace(tzinfo=UTC)
            if until and until != "forever"
            else FOREVER
        ),
    )


def _in_time(shown: Shown, now: datetime) -> Finding:
    check = "host certificate's time"
    if shown.valid_before <= now:
        return failed(check, f"it expired at {shown.valid_before.isoformat()}")
    if shown.valid_before - now < SOON:
        return warning(check, f"it expires at {shown.valid_before.isoformat()}")
    return ok(check, f"until {shown.valid_before.isoformat()}")


def _fingerprints(lines: Sequence[str]) -> frozenset[str]:
    found = set()
    for line in lines:
        try:
            found.add(accept(line).fingerprint)
        except KeyRefusedError:
            continue  # a kind of key we sign nothing with
    return frozenset(found)

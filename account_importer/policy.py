"""What root allows, whatever a plan says: a file only root can write, and the checks against it."""

import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

from account_importer.directory import Change, Kind, mark
from account_importer.names import forbidden
from account_importer.plan import Plan
from headgate.settings import Section, SettingsError, load


class Caps(Section, frozen=True):
    """How many changes of a kind one run may make."""

    create: int = 100
    block: int = 50
    unblock: int = 50


class Policy(Section, frozen=True):
    """The root-owned file. Names match `names` whole; a home is `<home_base>/<account>`."""

    realm: str
    kinds: tuple[str, ...]
    uid_first: int
    uid_last: int
    shells: tuple[str, ...]
    home_base: str = "/home"
    home_mode: int = 0o700
    skeleton: str = "/etc/skel"
    names: str = "[a-z_][a-z0-9_-]{0,31}"
    reserved: tuple[str, ...] = ()
    caps: Caps = Caps()


def load_policy(path: Path) -> Policy:
    """Read the policy, if nobody but root can have written it.

    Raises:
        SettingsError: not usable, or it or a folder above it is open to others.
    """
    path = path.resolve()  # links above it count by where they lead
    for place in (path, *path.parents):
        _only_roots(place)
    policy = load(path, Policy)
    if not 1000 <= policy.uid_first <= policy.uid_last < 2**31:  # noqa: PLR2004 - below 1000 is the system's (login.defs(5))
        raise SettingsError(f"{path}: uid_first to uid_last must be a range above 1000")
    unknown = set(policy.kinds) - {Kind.CREATE, Kind.BLOCK, Kind.UNBLOCK}
    if unknown:
        raise SettingsError(f"{path}: kinds: there is no {min(unknown)!r}")
    try:
        re.compile(policy.names)
    except re.error as error:
        raise SettingsError(f"{path}: names: {error}") from error
    return policy


def _only_roots(path: Path) -> None:
    try:
        status = path.stat()
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    open_to_others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if status.st_uid != 0 or open_to_others:
        raise SettingsError(f"{path}: must be root's and writable by root alone: apply obeys it")


def violations(plan: Plan, policy: Policy, earlier: Sequence[Change] = ()) -> list[str]:
    """All reasons why root must not carry out this plan; none: it may.

    `earlier` are other changes of the same run: caps are not escaped by many small plans.
    """
    if plan.realm != policy.realm:
        return [f"the plan is for the realm {plan.realm!r}, the policy for {policy.realm!r}"]
    found: list[str] = []
    for kind in Kind:
        cap = getattr(policy.caps, kind.value, 0)
        count = sum(change.kind == kind for change in (*earlier, *plan.changes))
        if count > cap:
            found.append(f"{count} changes of kind {kind.value}, the cap is {cap}")
    for seq, change in enumerate(plan.changes):
        found += [f"change {seq} ({change.kind}): {reason}" for reason in _faults(change, policy)]
    for what in ("account", "uid", "mark"):
        values = [getattr(change, what) for change in plan.changes]
        if len(set(values)) != len(values):
            found.append(f"two changes have the same {what}")
    return found


def _faults(change: Change, policy: Policy) -> list[str]:
    reserved = forbidden(change.account, policy.reserved)
    rules = {
        "this kind is not allowed": change.kind in policy.kinds,
        f"uid {change.uid} is out of range": policy.uid_first <= change.uid <= policy.uid_last,
        "the gid must be the uid": change.gid == change.uid,
        reserved or "the name is reserved": not reserved,
        "the name does not fit the policy": bool(re.fullmatch(policy.names, change.account)),
        f"the shell {change.shell!r} is not allowed": change.shell in policy.shells,
        "the home is elsewhere": change.home == os.path.join(policy.home_base, change.account),  # noqa: PTH118 - text, compared byte for byte
        "the mark is not this identity's": change.mark == mark(policy.realm, change.identity),
    }
    return [reason for reason, kept in rules.items() if not kept]

"""What a token would get here and why, for an administrator at a terminal."""

import argparse
from dataclasses import dataclass
from pathlib import Path

import msgspec

from headgate.clock import Clock, rfc3339
from headgate.identity import Principal
from headgate.problems import Invalid, Problem
from headgate.settings import load
from token_translator import grants, keys
from token_translator.callers import Callers
from token_translator.issuing import Accounts, Policy
from token_translator.rulebook import RuleBook
from token_translator.rules import Asked, Unmet
from token_translator.signer.ceilings import CeilingError, Ceilings, beyond, check
from token_translator.signer_client import ceiling_refused, key_refused

CEILINGS = Path("/etc/headgate/ceilings.toml")
"""Where the signer's usually are."""
OPEN = "depends_on_key"
"""The code of a decision that nobody can take without the key."""


@dataclass(frozen=True, slots=True)
class Question:
    """A token, and what would be asked for with it; without the key some is open."""

    token: str
    profile: grants.Profile = grants.Profile.PERSON
    realm: str | None = None
    public_key: str | None = None


class Explained(msgspec.Struct, frozen=True):
    """What one rule says, and whether it is the one that decides."""

    rule: str
    applies: bool
    decides: bool
    unmet: tuple[Unmet, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about one token, step by step; `rules` are in the order they are tried."""

    granted: bool
    reasons: tuple[str, ...]
    rules: tuple[Explained, ...] = ()
    grant: grants.Grant | None = None
    refusal: str = ""


async def explain(
    question: Question,
    *,
    callers: Callers,
    accounts: Accounts,
    policy: Policy,
    clock: Clock,
    ceilings: Ceilings | str,
) -> Decision:
    """Verify the token, try every rule, ask the registry, look at the signer's ceilings.

    `ceilings` are words where they are not known. Nothing is signed or written.
    """
    reasons: list[str] = []
    explained: tuple[Explained, ...] = ()
    try:
        principal = await callers.person(question.token)
        reasons += _about(principal)
        asked = _asked(question, principal, policy, clock)
        reasons += [f"rule {verdict}" for verdict in policy.rules.verdicts(asked)]
        explained = _explained(policy.rules, asked)
        rule = policy.rules.admit(asked)
        reasons.append(f"decided by: {rule.name}")
        if asked.key_type is None and rule.key_types is not None:
            raise Invalid(
                f"It depends on the key, which must be of {' or '.join(sorted(rule.key_types))}: "
                "give --public-key FILE.",
                code=OPEN,
            )
        account = await accounts.account(principal.identity, asked.realm)
        reasons.append(f"registry: {account.account} (uid {account.uid}) in {account.realm}")
        if question.profile is grants.Profile.PERSON:
            grant = grants.grant_person(principal, account, rule, now=asked.now)
        else:
            program = policy.session_program
            grant = grants.grant_session(principal, account, rule, program=program, now=asked.now)
        reasons += _within(ceilings, grant, asked)
    except Problem as problem:
        said = "open" if problem.stable_code == OPEN else "refused"
        reasons.append(f"{said}: {problem.detail} ({problem.stable_code})")
        challenge = problem.headers.get("WWW-Authenticate")
        reasons += [f"challenge: {challenge}"] if challenge else []
        code = problem.stable_code
        return Decision(granted=False, reasons=tuple(reasons), rules=explained, refusal=code)
    return Decision(granted=True, reasons=tuple(reasons), rules=explained, grant=grant)


def _within(ceilings: Ceilings | str, grant: grants.Grant, asked: Asked) -> list[str]:
    """What is to be said of the signer's ceilings; raises `Forbidden` as the signer would."""
    if isinstance(ceilings, str):
        return [f"ceilings: not looked at: {ceilings}; beyond them the signer refuses"]
    try:
        # The key-id is made when it is signed, and always such a string.
        check(ceilings, grant, "v1;explained=yes", now=asked.now)
        if asked.key_type is not None and asked.key_type not in ceilings.key_types:
            raise beyond("key_types", asked.key_type, sorted(ceilings.key_types))
    except CeilingError as error:
        raise ceiling_refused(str(error)) from error
    if asked.key_type is None:
        kinds = ", ".join(sorted(ceilings.key_types))
        return [f"ceilings: within; the key must be of {kinds}: see --public-key"]
    return ["ceilings: within"]


def read(path: Path) -> Ceilings | str:
    """The signer's ceilings, or why they are not known; `SettingsError` where they are wrong."""
    try:
        path.read_bytes()
    except OSError as error:
        return f"{path}: {error.strerror}"
    return load(path, Ceilings)


def add_ceilings(verb: argparse.ArgumentParser) -> None:
    """Where a command finds the ceilings."""
    verb.add_argument(
        "--ceilings",
        type=Path,
        default=CEILINGS,
        metavar="FILE",
        help=f"the signer's ({CEILINGS} unless said)",
    )


def _asked(question: Question, principal: Principal, policy: Policy, clock: Clock) -> Asked:
    key_type = None
    if question.public_key is not None:
        try:
            key_type = keys.accept(question.public_key, types=policy.key_types).kind
        except keys.KeyRefusedError as error:
            raise key_refused(str(error)) from error
    realm = policy.realm(question.realm)
    return Asked(principal, question.profile, realm, clock.now(), key_type)


def _explained(book: RuleBook, asked: Asked) -> tuple[Explained, ...]:
    verdicts = book.verdicts(asked)
    first = next((verdict for verdict in verdicts if verdict.applies), None)
    return tuple(
        Explained(verdict.rule, verdict.applies, verdict is first, verdict.unmet)
        for verdict in verdicts
    )


def _about(principal: Principal) -> list[str]:
    since = principal.authenticated_at
    login = f"{principal.acr or '(no class)'}, {rfc3339(since) if since else '(no time)'}"
    return [
        f"token: {principal.identity}, client {principal.client_id or '(none)'}",
        f"token: expires {rfc3339(principal.expires_at)}",
        f"token: scopes {_listed(principal.scopes)}",
        f"token: groups {_listed(principal.groups)}",
        f"token: entitlements {_listed(principal.entitlements)}",
        f"token: login {login}",
        f"token: assurance {_listed(principal.assurance)}",
    ]


def _listed(words: frozenset[str]) -> str:
    return ", ".join(sorted(words)) or "(none)"


def render(decision: Decision, *, as_json: bool) -> str:
    """The decision as lines for a person, or as one JSON object."""
    if as_json:
        return msgspec.json.format(msgspec.json.encode(decision), indent=2).decode()
    lines = list(decision.reasons)
    if decision.grant is not None:
        grant = decision.grant
        lines.append(
            f"granted: {', '.join(grant.principals)} until {rfc3339(grant.valid_before)}, "
            f"command {grant.force_command or '(any)'}, "
            f"extensions {', '.join(grant.extensions) or '(none)'}, "
            f"from {', '.join(grant.source_addresses) or 'anywhere'}"
        )
    # What an issuer writes into a token must not steer the administrator's terminal.
    return "\n".join("".join(c if c.isprintable() else "?" for c in line) for line in lines)

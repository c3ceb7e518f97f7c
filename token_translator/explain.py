"""What a token would get here and why, for an administrator at a terminal."""

from dataclasses import dataclass

import msgspec

from headgate.clock import Clock, rfc3339
from headgate.problems import Problem
from token_translator import grants
from token_translator.callers import Callers
from token_translator.issuing import Accounts, Policy


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about one token for a person's own login, step by step."""

    granted: bool
    reasons: tuple[str, ...]
    grant: grants.Grant | None = None


async def explain(
    token: str, *, callers: Callers, accounts: Accounts, policy: Policy, clock: Clock
) -> Decision:
    """Verify the token, try every rule, ask the registry; nothing is signed or written."""
    reasons: list[str] = []
    try:
        principal = await callers.person(token)
        reasons.append(f"token: {principal.identity}, client {principal.client_id or '(none)'}")
        reasons.append(f"token: expires {rfc3339(principal.expires_at)}")
        reasons.append(f"token: groups {', '.join(sorted(principal.groups)) or '(none)'}")
        for rule in policy.rules:
            said = grants.mismatch(rule, principal, grants.Profile.PERSON) or "applies"
            reasons.append(f"rule {rule.name}: {said}")
        rule = grants.admit(principal, grants.Profile.PERSON, policy.rules)
        account = await accounts.account(principal.identity, policy.realm(None))
        reasons.append(f"registry: {account.account} (uid {account.uid}) in {account.realm}")
        grant = grants.grant_person(principal, account, rule, now=clock.now())
    except Problem as problem:
        reasons.append(f"refused: {problem.detail} ({problem.stable_code})")
        return Decision(granted=False, reasons=tuple(reasons))
    return Decision(granted=True, reasons=tuple(reasons), grant=grant)


def render(decision: Decision, *, as_json: bool) -> str:
    """The decision as lines for a person, or as one JSON object."""
    if as_json:
        return msgspec.json.format(msgspec.json.encode(decision), indent=2).decode()
    lines = list(decision.reasons)
    if decision.grant is not None:
        grant = decision.grant
        lines.append(
            f"granted: {', '.join(grant.principals)} until {rfc3339(grant.valid_before)}, "
            f"extensions {', '.join(grant.extensions) or '(none)'}, "
            f"from {', '.join(grant.source_addresses) or 'anywhere'}"
        )
    return "\n".join(lines)

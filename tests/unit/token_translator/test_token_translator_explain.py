"""Explain: the decision about a token, for people and programs, with each rule's verdict."""

import json
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headgate.clock import HeldClock
from headgate.identity import Identity, Principal
from headgate.problems import Forbidden, Unauthenticated
from headgate.settings import SettingsError
from token_translator.explain import Decision, Question, explain, read, render
from token_translator.grants import Account, Profile
from token_translator.issuing import Policy
from token_translator.keys import DEFAULT_TYPES
from token_translator.rulebook import RuleBook
from token_translator.rules import EVERYBODY, Rule
from token_translator.signer.ceilings import Ceilings

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g x"

WIDE = Ceilings(session_programs=("/x/session",))


@dataclass(slots=True)
class Site:
    """A person who calls, a registry that answers, and the site's rules."""

    clock: HeldClock
    groups: frozenset[str] = frozenset()
    refusal: Exception | None = None
    sub: str = "alice"

    async def person(self, token: str) -> Principal:
        """The principal of the only good token."""
        if token != "good":
            raise Unauthenticated("The token has expired.")
        return Principal(
            identity=Identity("https://iam.example/", self.sub),
            audience=frozenset({"us"}),
            expires_at=self.clock.now() + timedelta(hours=1),
            groups=self.groups,
        )

    async def account(self, identity: Identity, realm: str) -> Account:
        """Alice's account."""
        assert identity.sub
        if self.refusal is not None:
            raise self.refusal
        return Account(realm=realm, account="alice", uid=20001)

    async def explain(
        self, *rules: Rule, ceilings: Ceilings | str = WIDE, **question: Any
    ) -> Decision:
        """The decision about her token under these rules."""
        policy = Policy(
            per_minute=60,
            rules=RuleBook(rules),
            realms=("site1", "site2"),
            key_types=frozenset(DEFAULT_TYPES),
            session_program="/x/session",
            seal_max_age=timedelta(days=1),
            sealed_lifetime=timedelta(minutes=5),
            sealed_per_minute=1,
            sealed_per_minute_of_service=1,
        )
        asked = Question(**{"token": "good", **question})
        return await explain(
            asked,
            callers=self,  # type: ignore[arg-type]  # it has the one method that is used
            accounts=self,  # type: ignore[arg-type]  # as above
            policy=policy,
            clock=self.clock,
            ceilings=ceilings,
        )


@pytest.fixture
def site() -> Site:
    """A site on a held clock."""
    return Site(HeldClock())


def rule(**conditions: Any) -> Rule:
    """A rule, lists written as in TOML."""
    return msgspec.convert(conditions, Rule)


STAFF = rule(name="staff", groups=["staff"], acr=["mfa"])
SFTP = rule(name="files", profiles=["person"], command="sftp", hosts=["data"])


async def test_each_rule_has_its_verdict(site: Site) -> None:
    """What each rule misses is said, in order, and which one decides."""
    decision = await site.explain(STAFF, SFTP, EVERYBODY)
    assert decision.granted
    lines = render(decision, as_json=False).splitlines()
    assert (
        "rule staff: it needs a login of the class mfa; it needs one of the groups staff" in lines
    )
    assert "rule files: applies" in lines
    assert "decided by: files" in lines
    assert lines[-1].startswith("granted: hg:site1@data:alice until ")
    assert "command internal-sftp" in lines[-1]


async def test_programs_read_the_same(site: Site) -> None:
    """As JSON each rule says which conditions are unmet, and whether it decides."""
    document = json.loads(render(await site.explain(STAFF, EVERYBODY), as_json=True))
    assert document["granted"] is True
    first, second = document["rules"]
    assert [unmet["condition"] for unmet in first["unmet"]] == ["acr", "groups"]
    assert [unmet["step_up"] for unmet in first["unmet"]] == [True, False]
    assert (first["applies"], first["decides"]) == (False, False)
    assert (second["applies"], second["decides"], second["unmet"]) == (True, True, [])
    assert document["grant"]["principals"] == ["hg:site1:alice"]


async def test_a_refusal_names_its_code(site: Site) -> None:
    """No rule, a bad token, a registry that refuses: the code, and the verdicts up to there."""
    decision = await site.explain(STAFF)
    assert (decision.granted, decision.refusal, len(decision.rules)) == (False, "no_rule", 1)
    decision = await site.explain(EVERYBODY, token="bad")
    assert (decision.refusal, decision.rules) == ("invalid_token", ())
    site.refusal = Forbidden("Blocked.", code="account_blocked")
    decision = await site.explain(EVERYBODY)
    assert decision.reasons[-1] == "refused: Blocked. (account_blocked)"


async def test_a_step_up_is_shown_as_the_caller_gets_it(site: Site) -> None:
    """Where a new login would do, the challenge is there to compare."""
    site.groups = frozenset({"staff"})
    decision = await site.explain(STAFF)
    assert decision.refusal == "insufficient_user_authentication"
    assert 'acr_values="mfa"' in decision.reasons[-1]


async def test_other_questions(site: Site) -> None:
    """A service's certificate, another realm and a key's type can be asked about."""
    keyed = rule(name="keyed", key_types=["ssh-ed25519"], realms=["site2"])
    decision = await site.explain(keyed, profile=Profile.SESSION, realm="site2", public_key=KEY)
    assert decision.grant is not None
    assert decision.grant.force_command == "/x/session"
    assert decision.grant.principals == ("hg:site2:alice",)
    assert (await site.explain(keyed)).refusal == "no_rule"
    assert (await site.explain(keyed, realm="mars")).refusal == "realm_unknown"
    assert (await site.explain(keyed, public_key="x")).refusal == "key_refused"


async def test_a_condition_on_the_key_is_not_taken_as_met(site: Site) -> None:
    """Without the key the decision is open, and says what to give; with it, it is taken."""
    keyed = rule(name="keyed", key_types=["ssh-ed25519", "ecdsa-sha2-nistp256"])
    decision = await site.explain(keyed, EVERYBODY)
    assert (decision.granted, decision.refusal) == (False, "depends_on_key")
    assert decision.reasons[-1].startswith(
        "open: It depends on the key, which must be of ecdsa-sha2-nistp256 or ssh-ed25519: "
        "give --public-key FILE."
    )
    assert (await site.explain(keyed, EVERYBODY, public_key=KEY)).granted
    decision = await site.explain(EVERYBODY)
    assert (decision.granted, "see --public-key" in decision.reasons[-1]) == (True, True)


async def test_the_signers_ceilings_are_looked_at(site: Site) -> None:
    """What the signer would refuse is refused here, in its words; what is not known is said."""
    low = Ceilings(max_lifetime=600)
    decision = await site.explain(EVERYBODY, ceilings=low)
    assert (decision.granted, decision.refusal) == (False, "ceiling")
    assert "max_lifetime: asked 3600 s, allowed 600 s" in decision.reasons[-1]
    other = Ceilings(key_types=frozenset({"ecdsa-sha2-nistp256"}))
    decision = await site.explain(EVERYBODY, ceilings=other, public_key=KEY)
    asked = "key_types: asked ssh-ed25519, allowed ecdsa-sha2-nistp256"
    assert asked in decision.reasons[-1]
    decision = await site.explain(EVERYBODY, ceilings="/x: Permission denied")
    assert decision.granted
    assert decision.reasons[-1] == (
        "ceilings: not looked at: /x: Permission denied; beyond them the signer refuses"
    )


def test_ceilings_are_read_where_they_can_be(tmp_path: Path) -> None:
    """A file that is not there is words; one that is wrong is an error."""
    path = tmp_path / "ceilings.toml"
    assert read(path) == f"{path}: No such file or directory"
    path.write_text("max_lifetime = 700")
    assert read(path) == Ceilings(max_lifetime=700)
    path.write_text("max_life = 700")
    with pytest.raises(SettingsError, match="max_life"):
        read(path)


async def test_a_token_does_not_steer_the_terminal(site: Site) -> None:
    """What somebody put into their name or groups is shown as text only."""
    site.sub, site.groups = "\x1b[2Jalice", frozenset({"a\x9b31m", "b\nrule x: applies"})
    said = render(await site.explain(STAFF), as_json=False)
    assert all(line.isprintable() for line in said.split("\n"))
    assert "\nrule x" not in said

"""Policy: what a principal gets, and what a refusal says."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.identity import Identity, Principal
from headgate.problems import Forbidden, Unauthenticated
from headgate.settings import SettingsError, load
from token_translator.grants import (
    EVERYBODY,
    KEY_ID,
    Account,
    Profile,
    Rule,
    admit,
    grant_person,
    grant_sealed,
    grant_session,
    key_id,
    token_fingerprint,
)

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
ALICE = Account(realm="site1", account="alice", uid=20001)


def principal(**changes: object) -> Principal:
    """Alice, with a token of one hour."""
    usual = {
        "identity": Identity("https://iam.example/", "alice"),
        "audience": frozenset({"us"}),
        "expires_at": NOW + timedelta(hours=1),
        "groups": frozenset({"site/staff"}),
        "scopes": frozenset({"openid"}),
        "client_id": "laptop",
        "token_id": "jti",
    }
    return Principal(**{**usual, **changes})  # type: ignore[arg-type]  # a test's shorthand


def test_a_person_gets_a_terminal_and_nothing_else() -> None:
    """The default is one namespaced principal, permit-pty, backdated by a minute."""
    grant = grant_person(principal(), ALICE, EVERYBODY, now=NOW)
    assert grant.principals == ("hg:site1:alice",)
    assert grant.extensions == ("permit-pty",)
    assert grant.force_command == ""
    assert grant.valid_after == NOW - timedelta(seconds=60)


@pytest.mark.parametrize(
    ("token", "rule", "granted"),
    [(3600, 8 * 3600, 3600), (36000, 8 * 3600, 8 * 3600), (1, 60, 1), (86400, 60, 60)],
)
def test_lifetime_is_the_shorter_of_policy_and_token(token: int, rule: int, granted: int) -> None:
    """Neither the rule nor the token is outlived."""
    expires_at = NOW + timedelta(seconds=token)
    rules = Rule(name="r", lifetime=rule)
    grant = grant_person(principal(expires_at=expires_at), ALICE, rules, now=NOW)
    assert grant.valid_before == NOW + timedelta(seconds=granted)


@pytest.mark.parametrize("seconds", [0, -1, -59])
def test_a_token_that_just_expired(seconds: int) -> None:
    """A token that ended between check and grant gives nothing."""
    late = principal(expires_at=NOW + timedelta(seconds=seconds))
    with pytest.raises(Unauthenticated):
        grant_person(late, ALICE, EVERYBODY, now=NOW)


def test_a_session_is_the_program_alone() -> None:
    """Whatever a rule permits a person, a service's connection has no extension."""
    rule = Rule(name="r", extensions=("permit-pty", "permit-agent-forwarding"))
    grant = grant_session(principal(), ALICE, rule, program="/x/session", now=NOW)
    assert (grant.force_command, grant.extensions) == ("/x/session", ())


def test_a_sealed_command() -> None:
    """Without a token the lifetime is what the caller says, and the command is fixed."""
    until = NOW + timedelta(minutes=5)
    grant = grant_sealed(ALICE, command="/x --only status:1", now=NOW, until=until)
    assert (grant.force_command, grant.extensions) == ("/x --only status:1", ())
    assert grant.valid_before == until


@pytest.mark.parametrize(
    "name",
    [
        "root", "ROOT", "-oProxyCommand=x", "--", "a b", "a,b", "a:b", "a\nb", "a\0b", "a\tb",
        "../x", "$(id)", "a" * 33, "ﬁ", "\u0430", "\u202eevil", "machine$", "0", "", "Alice",
    ],
)  # fmt: skip
def test_names_that_are_no_accounts(name: str) -> None:
    """A principal list is split at commas and a log at newlines: no such name gets that far."""
    with pytest.raises(Forbidden):
        grant_person(principal(), Account("site1", name, 20001), EVERYBODY, now=NOW)


def test_uid_zero_by_any_name() -> None:
    """An account with root's uid gets nothing."""
    with pytest.raises(Forbidden):
        grant_person(principal(), Account("site1", "toor", 0), EVERYBODY, now=NOW)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Rule(name="r", issuers=frozenset({"https://other/"})), "another issuer"),
        (Rule(name="r", issuers=frozenset({"https://iam.example"})), "another issuer"),
        (Rule(name="r", groups=frozenset({"site/staff-admins"})), "site/staff-admins"),
        (Rule(name="r", groups=frozenset({"site"})), "one of the groups site"),
        (Rule(name="r", clients=frozenset({"orchestrator"})), "client laptop"),
        (Rule(name="r", scopes=frozenset({"headgate.ssh"})), "headgate.ssh"),
        (Rule(name="r", profiles=frozenset({Profile.SESSION})), "it is for session"),
    ],
)
def test_refusals_say_what_each_rule_needs(rule: Rule, words: str) -> None:
    """Groups and issuers match exactly; what is missing is in the refusal."""
    with pytest.raises(Forbidden) as caught:
        admit(principal(), Profile.PERSON, [rule])
    assert caught.value.stable_code == "no_rule"
    assert words in caught.value.members["rules"][0]


def test_the_first_rule_that_applies_decides() -> None:
    """Order is the administrator's means: a later, wider rule does not widen an earlier one."""
    narrow = Rule(name="narrow", groups=frozenset({"site/staff"}), lifetime=60)
    assert admit(principal(), Profile.PERSON, [narrow, EVERYBODY]).name == "narrow"
    guest = principal(groups=frozenset())
    assert admit(guest, Profile.PERSON, [narrow, EVERYBODY]) is EVERYBODY


@pytest.mark.parametrize(
    "text",
    [
        'name = "r"\ngroup = ["a"]',
        'name = "r"\nextensions = ["permit-everything"]',
        'name = "r"\nsource_addresses = ["10.0.0.1/8"]',
        'name = "r"\nlifetime = 0',
        'name = "r"\nprofiles = ["admin"]',
    ],
)
def test_a_typo_never_gives_more(text: str, tmp_path: Path) -> None:
    """A rule that is not understood to the letter is refused as a whole."""
    (tmp_path / "rule.toml").write_text(text)
    with pytest.raises(SettingsError):
        load(tmp_path / "rule.toml", Rule)


@given(st.text(max_size=300), st.text(max_size=300))
def test_key_ids_never_break_a_line(sub: str, client: str) -> None:
    """Whatever an issuer puts into a subject, the audit string is one and well-formed."""
    text = key_id(iss="https://iam.example/", sub=sub, cid=client, jti="", row="1")
    assert KEY_ID.fullmatch(text)
    assert text.isprintable()


def test_only_a_fingerprint_of_a_token_is_kept() -> None:
    """Sixteen hex digits of the jti's SHA-256, and nothing where there is no jti."""
    assert len(token_fingerprint(principal())) == 16
    assert token_fingerprint(principal(token_id="")) == ""


def test_a_grant_survives_the_wire() -> None:
    """What the signer reads is what policy decided."""
    grant = grant_person(principal(), ALICE, EVERYBODY, now=NOW)
    assert msgspec.json.decode(msgspec.json.encode(grant), type=type(grant)) == grant

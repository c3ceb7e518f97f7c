"""Rules: who gets a certificate, what a refusal says, and that no mistake in them gives more."""

import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.identity import Identity, Principal
from headgate.oidc import IssuerSettings, check_issuers
from headgate.problems import Forbidden, Problem, Unauthenticated
from headgate.settings import SettingsError, load
from token_translator.grants import Command, Profile
from token_translator.rulebook import ClientCeiling, RuleBook
from token_translator.rules import EVERYBODY, Asked, Rule, Unmet, judge

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
IAM = "https://iam.example/"
IAM_OF_PAGE = "https://iam.example.org/"
MFA = "https://refeds.org/profile/mfa"
RAF = "https://refeds.org/assurance"
HPC = "urn:mace:egi.eu:group:hpc"


def asked(**changes: Any) -> Asked:
    """Alice asks for a certificate of her own, in the realm site1, for an Ed25519 key."""
    usual: dict[str, Any] = {
        "identity": Identity(IAM, "alice"),
        "audience": frozenset({"us"}),
        "expires_at": NOW + timedelta(hours=1),
        "groups": frozenset({"site/staff"}),
        "scopes": frozenset({"openid"}),
        "client_id": "laptop",
    }
    about = {"profile": Profile.PERSON, "realm": "site1", "now": NOW, "key_type": "ssh-ed25519"}
    for name in about.keys() & changes.keys():
        about[name] = changes.pop(name)
    return Asked(Principal(**{**usual, **changes}), **about)  # type: ignore[arg-type]  # a test's shorthand


def rule(**conditions: Any) -> Rule:
    """A rule, lists written as in TOML."""
    return msgspec.convert({"name": "r", **conditions}, Rule)


def applies(one: Rule, **changes: Any) -> bool:
    """Whether a rule applies to what Alice asks."""
    return judge(one, asked(**changes)).applies


def refusal(book: RuleBook, **changes: Any) -> Problem:
    """The problem with which Alice is refused."""
    with pytest.raises(Problem) as caught:
        book.admit(asked(**changes))
    return caught.value


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        ({"issuers": ["https://other/"]}, "another issuer"),
        ({"issuers": ["https://iam.example"]}, "another issuer"),
        ({"groups": ["site/staff-admins"]}, "site/staff-admins"),
        ({"groups": ["site"]}, "one of the groups site"),
        ({"groups": ["site"], "subgroups": True, "realms": ["site2"]}, "the realm site2"),
        ({"entitlements": [HPC]}, f"one of the entitlements {HPC}"),
        ({"clients": ["orchestrator"]}, "client laptop"),
        ({"scopes": ["openid", "headgate.ssh"]}, "the scope headgate.ssh"),
        ({"profiles": ["session"]}, "it is for session"),
        ({"realms": ["site2", "site3"]}, "the realm site2 or site3"),
        ({"acr": [MFA]}, f"a login of the class {MFA}"),
        ({"max_auth_age": 900}, "a login of the last 900 s"),
        ({"assurance": [f"{RAF}/IAP/medium"]}, f"the assurance {RAF}/IAP/medium"),
        ({"key_types": ["sk-ssh-ed25519@openssh.com"]}, "a key of the type sk-ssh"),
    ],
)
def test_each_condition_is_named_in_the_refusal(conditions: dict[str, Any], words: str) -> None:
    """What failed and what would satisfy it is in the problem, for people and for programs."""
    problem = refusal(RuleBook((rule(**conditions),)))
    assert words in problem.members["rules"][0]
    verdict = msgspec.to_builtins(problem.members["verdicts"][0])
    assert verdict["rule"] == "r"
    assert words in verdict["unmet"][0]["detail"]


def test_every_condition_that_fails_is_said() -> None:
    """A person is not led through the conditions one by one."""
    one = rule(groups=["x"], scopes=["y"], acr=[MFA])
    assert [unmet.condition for unmet in judge(one, asked()).unmet] == ["acr", "groups", "scopes"]


def test_all_conditions_have_to_hold() -> None:
    """A rule whose every condition holds applies, and no fewer."""
    one = rule(
        profiles=["person"],
        realms=["site1"],
        issuers=[IAM, "https://other/"],
        clients=["laptop", "x"],
        groups=["x", "site/staff"],
        entitlements=[f"{HPC}#aai.egi.eu"],
        scopes=["openid"],
        acr=["x", MFA],
        max_auth_age=900,
        assurance=[f"{RAF}/ID/unique", f"{RAF}/IAP/medium"],
        key_types=["ssh-ed25519"],
    )
    facts: dict[str, Any] = {
        "entitlements": frozenset({"urn:other", f"{HPC}#aai.egi.eu"}),
        "acr": MFA,
        "authenticated_at": NOW - timedelta(seconds=900),
        "assurance": frozenset({f"{RAF}/ID/unique", f"{RAF}/IAP/medium", f"{RAF}/version/2"}),
    }
    assert applies(one, **facts)
    for name in facts:
        assert not applies(one, **{key: facts[key] for key in facts if key != name})
    assert not applies(one, **{**facts, "assurance": frozenset({f"{RAF}/IAP/medium"})})


def test_the_first_rule_that_applies_decides() -> None:
    """Order is the administrator's means: a later, wider rule does not widen an earlier one."""
    narrow = rule(name="narrow", groups=["site/staff"], lifetime=60)
    book = RuleBook((narrow, EVERYBODY))
    assert book.admit(asked()).name == "narrow"
    assert book.admit(asked(groups=frozenset())) is EVERYBODY


def test_no_rules_admit_nobody() -> None:
    """An empty list of rules is not the default one."""
    assert refusal(RuleBook(())).stable_code == "no_rule"


@pytest.mark.parametrize(
    ("held", "exactly", "below"),
    [
        pytest.param("hpc", True, True, id="the same"),
        pytest.param("hpc-admins", False, False, id="prefix of a longer name"),
        pytest.param("hpc/admins", False, True, id="subgroup"),
        pytest.param("HPC", False, False, id="other case"),
        pytest.param("x/hpc", False, False, id="suffix"),
        pytest.param("hpc ", False, False, id="trailing blank"),
        pytest.param("", False, False, id="no name"),
        pytest.param("/hpc", False, False, id="a slash that the edge has not taken"),
    ],
)
def test_groups_are_compared_as_wholes(held: str, *, exactly: bool, below: bool) -> None:
    """No prefix is a group; a group below counts only where the rule says so."""
    assert applies(rule(groups=["hpc"]), groups=frozenset({held})) is exactly
    assert applies(rule(groups=["hpc"], subgroups=True), groups=frozenset({held})) is below


def test_wlcg_groups_are_written_with_their_slash_or_without() -> None:
    """`/hpc/night` in a rule is the group that WLCG tokens call so."""
    assert applies(rule(groups=["/hpc/night"]), groups=frozenset({"hpc/night"}))


@pytest.mark.parametrize(
    ("held", "met"),
    [
        pytest.param(f"{HPC}#aai.egi.eu", True, id="the same"),
        pytest.param(f"{HPC}#evil.example", False, id="authority mismatch"),
        pytest.param(f"{HPC}-admins#aai.egi.eu", False, id="prefix confusion"),
        pytest.param(f"{HPC}:night#aai.egi.eu", False, id="subgroup not asked for"),
        pytest.param(f"{HPC}:role=manager#aai.egi.eu", False, id="role is no membership"),
        pytest.param(f"{HPC}:role=member#aai.egi.eu", True, id="role member"),
        pytest.param(f"{HPC}%3Anight#aai.egi.eu", False, id="encoded colon"),
        pytest.param("not an entitlement at all", False, id="malformed"),
    ],
)
def test_entitlements(held: str, *, met: bool) -> None:
    """AARC-G069 memberships satisfy a rule as wholes, and others beside them do no harm."""
    one = rule(entitlements=[f"{HPC}#aai.egi.eu"])
    assert applies(one, entitlements=frozenset({held, "urn:x-other:thing"})) is met


def test_subgroups_of_entitlements_are_explicit() -> None:
    """With `subgroups` a member of a group below is a member; a role below is still no role."""
    one = rule(entitlements=[HPC, f"{HPC}:role=manager"], subgroups=True)
    assert applies(one, entitlements=frozenset({f"{HPC}:night"}))
    assert not applies(one, entitlements=frozenset({f"{HPC}:night:role=manager"}))


def test_mfa_is_an_acr_and_no_assurance() -> None:
    """REFEDS MFA is the login's class; as a value of eduperson_assurance it says nothing."""
    one = rule(acr=[MFA])
    assert applies(one, acr=MFA)
    assert not applies(one, assurance=frozenset({MFA}))
    assert not applies(one, acr=f"{RAF}/profile/mfa")
    assert not applies(rule(assurance=[MFA]), acr=MFA)


@pytest.mark.parametrize(
    ("seconds", "met"), [(0, True), (900, True), (901, False), (-60, True), (None, False)]
)
def test_the_age_of_a_login(seconds: int | None, *, met: bool) -> None:
    """A login is recent to the second; a token that does not say when it was is not."""
    since = None if seconds is None else NOW - timedelta(seconds=seconds)
    assert applies(rule(max_auth_age=900), authenticated_at=since) is met


def test_a_key_type_counts_where_a_key_is_certified() -> None:
    """A seal certifies no key of the caller's: a condition on keys does not concern it."""
    one = rule(key_types=["sk-ssh-ed25519@openssh.com"])
    assert not applies(one)
    assert applies(one, key_type="sk-ssh-ed25519@openssh.com")
    assert applies(one, key_type=None)


def test_a_step_up_is_asked_for_where_it_would_do() -> None:
    """RFC 9470: 401, with the class and the age of the login that the first such rule needs."""
    book = RuleBook((
        rule(name="others", groups=["others"], acr=["gold"]),
        rule(name="strong", acr=[MFA, "https://refeds.org/profile/sfa"], max_auth_age=900),
        rule(name="fresh", max_auth_age=60),
    ))  # fmt: skip
    problem = refusal(book)
    assert isinstance(problem, Unauthenticated)
    assert problem.stable_code == "insufficient_user_authentication"
    challenge = problem.response_headers()["WWW-Authenticate"]
    assert challenge.startswith('Bearer error="insufficient_user_authentication", ')
    assert f'acr_values="{MFA} https://refeds.org/profile/sfa"' in challenge
    assert 'max_age="900"' in challenge
    document = msgspec.to_builtins(problem.document())
    assert document["acr_values"] == [MFA, "https://refeds.org/profile/sfa"]
    assert document["max_age"] == 900
    assert len(document["verdicts"]) == 3


def test_a_step_up_is_not_asked_for_in_vain() -> None:
    """Where a group is missing too, a stronger login would not help: 403."""
    problem = refusal(RuleBook((rule(groups=["others"], acr=[MFA]),)))
    assert isinstance(problem, Forbidden)
    assert "WWW-Authenticate" not in problem.response_headers()


def test_a_narrower_rule_needs_no_step_up() -> None:
    """Who is admitted by a later rule is admitted; nobody is sent to log in again."""
    book = RuleBook((rule(acr=[MFA], lifetime=86400), EVERYBODY))
    assert book.admit(asked()) is EVERYBODY


def test_a_client_has_a_ceiling() -> None:
    """An orchestrator's token gets sessions and no login, whatever the rules say."""
    ceiling = ClientCeiling(
        issuer=IAM, client_id="orchestrator", profiles=frozenset({Profile.SESSION})
    )
    book = RuleBook(clients=(ceiling,))
    assert refusal(book, client_id="orchestrator").stable_code == "client_ceiling"
    assert book.admit(asked(client_id="orchestrator", profile=Profile.SESSION))
    assert book.admit(asked())
    other = Identity("https://other/", "alice")
    assert book.admit(asked(identity=other, client_id="orchestrator"))


@pytest.mark.parametrize(
    "text",
    [
        "group = ['a']", "acr_values = ['a']", "hots = ['login']",
        "groups = []", "groups = ['']", "groups = 'a'", "issuers = []", "clients = []",
        "clients = ['']", "scopes = []", "entitlements = []", "assurance = []", "acr = []",
        "acr = ['a b']", "acr = ['a\"b']", "acr = ['']", "acr = ['a\\nb']", "key_types = []",
        "key_types = ['ssh-dss']", "realms = []", "profiles = []", "profiles = ['admin']",
        "max_auth_age = 0", "max_auth_age = '15m'", "lifetime = 0", "lifetime = 604801",
        "entitlements = ['hpc']", "entitlements = ['urn:mace:egi.eu:res:vm']", "subgroups = true",
        "extensions = ['permit-everything']", "command = 'bash'", "command = ['sftp']",
        "source_addresses = []", "source_addresses = ['10.0.0.1/8']", "source_addresses = ['*']",
        "session_source_addresses = []", "session_source_addresses = ['x']",
        "profiles = ['person']\nhosts = []", "profiles = ['person']\nhosts = ['*']",
        "profiles = ['person']\nhosts = ['a:b']", "profiles = ['person']\nhosts = [\"a\\n\"]",
        "profiles = ['person']\nhosts = ['a', 'b', 'c', 'd', 'e']",
        "hosts = ['login']", "command = 'sftp'",
        "profiles = ['person']\ncommand = 'sftp'\nextensions = ['permit-port-forwarding']",
        "name = ''",
    ],
)  # fmt: skip
def test_a_typo_never_gives_more(text: str, tmp_path: Path) -> None:
    """A rule that is not understood to the letter is refused as a whole; no list is empty."""
    name = "" if text.startswith("name") else "name = 'r'\n"
    (tmp_path / "rule.toml").write_text(name + text)
    with pytest.raises(SettingsError):
        load(tmp_path / "rule.toml", Rule)


@pytest.mark.parametrize(
    "text",
    [
        "groups = ['/hpc', 'site/x']\nsubgroups = true",
        "profiles = ['person']\nhosts = ['login', 'gpu-1']\ncommand = 'sftp'",
        "extensions = []",
        "acr = ['https://refeds.org/profile/mfa']\nmax_auth_age = 900",
        "source_addresses = ['192.0.2.0/24', '2001:db8::/32']",
        "entitlements = ['urn:mace:egi.eu:group:hpc:role=manager#aai.egi.eu']",
    ],
)
def test_rules_that_are_understood(text: str, tmp_path: Path) -> None:
    """What is documented is accepted."""
    (tmp_path / "rule.toml").write_text("name = 'r'\n" + text)
    assert load(tmp_path / "rule.toml", Rule)


TWO = (IAM, "https://other/")


@pytest.mark.parametrize(
    ("rules", "issuers", "words"),
    [
        ((rule(issuers=["https://iam.example"]),), (IAM,), "not one of the issuers"),
        ((rule(realms=["site2"]),), (IAM,), "not one of the realms"),
        ((rule(groups=["hpc"]),), TWO, "say whose"),
        ((rule(clients=["c"]),), TWO, "say whose"),
        ((rule(entitlements=[HPC]),), TWO, "say whose"),
        ((rule(groups=["hpc"]), rule(scopes=["x"])), (IAM,), "two are called"),
        ((EVERYBODY, rule(groups=["hpc"])), (IAM,), "never reached"),
    ],
)
def test_rules_that_can_only_be_a_mistake(
    rules: tuple[Rule, ...], issuers: tuple[str, ...], words: str
) -> None:
    """What cannot be what was meant is refused when the service starts."""
    with pytest.raises(ValueError, match=words):
        RuleBook(rules).check(issuers=issuers, realms=("site1",))


def test_rules_that_stand_together() -> None:
    """A group with its issuer, and a wider rule behind a narrower one, are as they should be."""
    persons = rule(name="persons", profiles=["person"])
    book = RuleBook((rule(issuers=[IAM], groups=["hpc"]), persons, EVERYBODY))
    book.check(issuers=TWO, realms=("site1",))
    ceiling = ClientCeiling(issuer="https://x/", client_id="c", profiles=frozenset(Profile))
    with pytest.raises(ValueError, match="clients"):
        RuleBook(clients=(ceiling,)).check(issuers=TWO, realms=("site1",))


@pytest.mark.parametrize(
    ("conditions", "details"),
    [
        ({}, set()),
        ({"scopes": ["x"], "acr": [MFA]}, set()),
        ({"groups": ["x"]}, {"groups"}),
        ({"entitlements": [HPC], "assurance": ["x"]}, {"groups", "assurance"}),
    ],
)
def test_what_the_rules_need_to_know(conditions: dict[str, Any], details: set[str]) -> None:
    """The issuer is asked about a person only for what some rule looks at."""
    assert RuleBook((rule(**conditions),)).details == details


def test_a_rule_for_file_transfers() -> None:
    """Terms come with the rule that applies."""
    one = rule(profiles=["person"], groups=["site/staff"], command="sftp", hosts=["data"])
    decided = RuleBook((one, EVERYBODY)).admit(asked())
    assert (decided.command, decided.hosts) == (Command.SFTP, ("data",))


def test_the_documented_example() -> None:
    """What the operators' page shows is understood, and stands together."""
    page = Path(__file__).parents[3] / "docs" / "operators" / "token-rules.md"
    text = page.read_text(encoding="utf-8").split("```toml\n")[1].split("```")[0]
    document = tomllib.loads(text)
    issuers = msgspec.convert(document["issuers"], tuple[IssuerSettings, ...])
    rules = msgspec.convert(document["rules"], tuple[Rule, ...])
    clients = msgspec.convert(document["clients"], tuple[ClientCeiling, ...])
    check_issuers(issuers)
    book = RuleBook(rules, clients)
    book.check(issuers=[issuer.url for issuer in issuers], realms=("main",))
    night = asked(groups=frozenset({"hpc/night"}), identity=Identity(IAM_OF_PAGE, "alice"))
    assert book.admit(night).name == "members"
    stranger = asked(identity=Identity(issuers[1].url, "bob"))
    assert book.admit(stranger).command is Command.SFTP


@given(
    st.frozensets(st.text(max_size=20)), st.frozensets(st.text(max_size=20)), st.text(max_size=20)
)
def test_what_a_token_says_never_breaks_a_verdict(
    groups: frozenset[str], entitlements: frozenset[str], acr: str
) -> None:
    """Whatever an issuer sends, a rule applies or says why not."""
    one = rule(groups=["hpc"], entitlements=[HPC], acr=[MFA], subgroups=True)
    verdict = judge(one, asked(groups=groups, entitlements=entitlements, acr=acr))
    assert all(isinstance(unmet, Unmet) and unmet.detail for unmet in verdict.unmet)

"""Grants: what a certificate says, never more than the rule, the token and the caller's wish."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.identity import Identity, Principal
from headgate.problems import Forbidden, Invalid, Unauthenticated
from token_translator.grants import (
    KEY_ID,
    Account,
    Command,
    Grant,
    Terms,
    grant_person,
    grant_sealed,
    grant_session,
    key_id,
    narrowed,
    through_door,
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
    grant = grant_person(principal(), ALICE, Terms(), now=NOW)
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
    rules = Terms(lifetime=rule)
    grant = grant_person(principal(expires_at=expires_at), ALICE, rules, now=NOW)
    assert grant.valid_before == NOW + timedelta(seconds=granted)


@pytest.mark.parametrize("seconds", [0, -1, -59])
def test_a_token_that_just_expired(seconds: int) -> None:
    """A token that ended between check and grant gives nothing."""
    late = principal(expires_at=NOW + timedelta(seconds=seconds))
    with pytest.raises(Unauthenticated):
        grant_person(late, ALICE, Terms(), now=NOW)


def test_a_session_is_the_program_alone() -> None:
    """Whatever a rule permits a person, a service's connection has no extension."""
    rule = Terms(extensions=("permit-pty", "permit-agent-forwarding"))
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
        grant_person(principal(), Account("site1", name, 20001), Terms(), now=NOW)


def test_uid_zero_by_any_name() -> None:
    """An account with root's uid gets nothing."""
    with pytest.raises(Forbidden):
        grant_person(principal(), Account("site1", "toor", 0), Terms(), now=NOW)


def test_file_transfers_alone() -> None:
    """The command sftp is sshd's own server, forced, and nothing beside it."""
    grant = grant_person(principal(), ALICE, Terms(command=Command.SFTP), now=NOW)
    assert (grant.force_command, grant.extensions) == ("internal-sftp", ())


def test_host_sets() -> None:
    """With host sets the certificate is good on those nodes only; no principal is for all."""
    grant = grant_person(principal(), ALICE, Terms(hosts=("login", "gpu")), now=NOW)
    assert grant.principals == ("hg:site1@login:alice", "hg:site1@gpu:alice")


def test_a_services_connection_is_not_bound_to_the_nodes_of_logins() -> None:
    """What limits a person's logins is not silently taken for a limit of services."""
    grant = grant_session(principal(), ALICE, Terms(hosts=("gpu",)), program="/x", now=NOW)
    assert grant.principals == ("hg:site1:alice",)


@pytest.mark.parametrize("host", ["", "a:b", "a@b", "a b", "*", "a,b", "A", "a\n", "-a"])
def test_names_that_are_no_host_sets(host: str) -> None:
    """A host set cannot smuggle in another principal."""
    with pytest.raises(Forbidden):
        grant_person(principal(), ALICE, Terms(hosts=(host,)), now=NOW)


def test_no_host_set_is_not_every_host() -> None:
    """An empty list of host sets gives no certificate, never one for all nodes."""
    with pytest.raises(Forbidden):
        grant_person(principal(), ALICE, Terms(hosts=()), now=NOW)


def wide(**changes: object) -> Grant:
    """A grant of an hour."""
    terms = {"source_addresses": ("192.0.2.0/24", "2001:db8::/32"), **changes}
    return grant_person(principal(), ALICE, Terms(**terms), now=NOW)  # type: ignore[arg-type]  # a test's shorthand


@pytest.mark.parametrize(
    ("asked", "granted"), [(600, 600), (3600, 3600), (3601, 3600), (10**30, 3600), (1, 1)]
)
def test_a_shorter_lifetime_can_be_asked_for(asked: int, granted: int) -> None:
    """A wish shortens and never lengthens, however large."""
    grant = narrowed(wide(), lifetime=asked, source_address=None, now=NOW)
    assert grant.valid_before == NOW + timedelta(seconds=granted)
    assert grant.source_addresses == wide().source_addresses


@pytest.mark.parametrize("asked", [0, -1, -(10**30)])
def test_a_lifetime_of_nothing(asked: int) -> None:
    """A lifetime that is none is a fault of the request, with its place."""
    with pytest.raises(Invalid) as caught:
        narrowed(wide(), lifetime=asked, source_address=None, now=NOW)
    assert caught.value.faults[0].pointer == "/lifetime"


def test_a_second_of_lifetime_between_two_seconds() -> None:
    """Times are cut to seconds; an end is never before the beginning of the present one."""
    now = NOW + timedelta(microseconds=999_999)
    grant = narrowed(wide(), lifetime=1, source_address=None, now=now)
    assert grant.valid_before == NOW + timedelta(seconds=1)


@pytest.mark.parametrize(
    ("asked", "granted"),
    [
        ("192.0.2.7", "192.0.2.7/32"),
        ("2001:db8::7", "2001:db8::7/128"),
        ("::ffff:192.0.2.7", "192.0.2.7/32"),
    ],
)
def test_one_address_can_be_asked_for(asked: str, granted: str) -> None:
    """An address within the rule's networks becomes the only one, as sshd will see it."""
    grant = narrowed(wide(), lifetime=None, source_address=asked, now=NOW)
    assert grant.source_addresses == (granted,)
    free = narrowed(wide(source_addresses=None), lifetime=None, source_address=asked, now=NOW)
    assert free.source_addresses == (granted,)


@pytest.mark.parametrize(
    "asked",
    ["198.51.100.1", "::1", "192.0.2.0/24", "0.0.0.0/0", "localhost", "", "fe80::1%eth0",
     "192.0.2.7,198.51.100.1", "192.0.2.7\n", "٣.0.2.7"],
)  # fmt: skip
def test_addresses_that_cannot_be_asked_for(asked: str) -> None:
    """An address outside the rule's networks, or none at all, is a fault with its place."""
    with pytest.raises(Invalid) as caught:
        narrowed(wide(), lifetime=None, source_address=asked, now=NOW)
    assert caught.value.faults[0].pointer == "/source_address"


@pytest.mark.parametrize("client", ["192.0.2.7", "::ffff:192.0.2.7", "2001:db8::7"])
def test_a_rules_addresses_are_the_clients_at_the_door(client: str) -> None:
    """Who comes from within the networks gets a certificate that is good from the door alone."""
    grant = through_door(wide(), client_address=client, door_address="198.51.100.1")
    assert grant.source_addresses == ("198.51.100.1/32",)


@pytest.mark.parametrize("client", ["198.51.100.9", "198.51.100.1", "::1", None])
def test_who_comes_from_elsewhere_is_refused_at_the_door(client: str | None) -> None:
    """From outside the networks, or without an address, there is nothing, whatever the door's."""
    with pytest.raises(Forbidden) as caught:
        through_door(wide(), client_address=client, door_address="192.0.2.1")
    assert caught.value.stable_code == "address_refused"


def test_a_door_without_an_address_gets_no_certificate_for_anywhere() -> None:
    """Under a rule with networks the door has to say its own address."""
    with pytest.raises(Forbidden) as caught:
        through_door(wide(), client_address="192.0.2.7", door_address=None)
    assert caught.value.stable_code == "door_address"


def test_a_rule_without_addresses_asks_the_door_for_none() -> None:
    """Without networks it does not matter from where somebody comes to the door."""
    free = wide(source_addresses=None)
    assert through_door(free, client_address=None, door_address=None) == free


@pytest.mark.parametrize("client", ["", "localhost", "192.0.2.0/24", "fe80::1%eth0"])
def test_a_clients_address_that_is_none(client: str) -> None:
    """A door that names no address makes a fault in its request."""
    with pytest.raises(Invalid) as caught:
        through_door(wide(), client_address=client, door_address="192.0.2.1")
    assert caught.value.faults[0].pointer == "/client_address"


@given(st.integers(), st.ip_addresses())
def test_a_wish_never_widens(lifetime: int, address: object) -> None:
    """Whatever is asked for, the result is a refusal or within the grant."""
    grant = wide()
    try:
        less = narrowed(grant, lifetime=lifetime, source_address=str(address), now=NOW)
    except Invalid:
        return
    assert NOW < less.valid_before <= grant.valid_before
    assert (less.principals, less.extensions) == (grant.principals, grant.extensions)


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
    grant = grant_person(principal(), ALICE, Terms(), now=NOW)
    assert msgspec.json.decode(msgspec.json.encode(grant), type=type(grant)) == grant

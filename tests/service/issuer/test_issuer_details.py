"""What an IAM-like issuer says of a token when it is asked, read by our own verifier."""

from pathlib import Path

import aiohttp
import pytest

from headgate.clock import HeldClock
from headgate.introspection import IntrospectionSettings
from headgate.oidc import IssuerSettings, TokenVerifier
from headgate.problems import Unauthenticated
from testbed.issuer.core import Issuer
from testbed.issuer.tokens import Grant

GROUPS = frozenset({"groups"})


def token(issuer: Issuer, *scopes: str) -> str:
    """A token of alice's for two audiences, without groups as IAM's are by default."""
    grant = Grant("cli", "alice", scopes, ("here", "there"))
    alice = issuer.directory.user("alice")
    return issuer.tokens.mint(grant, alice, issuer=issuer.url, lifetime=600).token


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """The secret of a client that may introspect."""
    path = tmp_path / "secret"
    path.write_text("s3\n")
    path.chmod(0o600)
    return path


def verifier(
    issuer: Issuer,
    session: aiohttp.ClientSession,
    clock: HeldClock,
    introspection: IntrospectionSettings | None = None,
) -> TokenVerifier:
    """Our verifier, in a service whose rules look at groups."""
    return TokenVerifier(
        issuers=[IssuerSettings(url=issuer.url, introspection=introspection)],
        audience="here",
        session=session,
        clock=clock,
        details=GROUPS,
    )


async def test_groups_by_userinfo(
    issuer: Issuer, session: aiohttp.ClientSession, clock: HeldClock
) -> None:
    """A token without groups gets those that userinfo tells its bearer."""
    principal = await verifier(issuer, session, clock).verify(token(issuer, "openid", "profile"))
    assert principal.groups == {"hpc", "gpu"}


async def test_groups_that_the_scopes_do_not_open(
    issuer: Issuer, session: aiohttp.ClientSession, clock: HeldClock
) -> None:
    """Without the scope `profile` there are none, and a token without `openid` has no userinfo."""
    for scopes in (("openid",), ("profile",)):
        principal = await verifier(issuer, session, clock).verify(token(issuer, *scopes))
        assert principal.groups == frozenset()


async def test_groups_by_introspection(
    issuer: Issuer, session: aiohttp.ClientSession, clock: HeldClock, secret: Path
) -> None:
    """Introspection, asked as our own client, says them of any token; revoked ones are refused."""
    settings = IntrospectionSettings(client_id="importer", client_secret_file=str(secret))
    asking = verifier(issuer, session, clock, settings)
    one = token(issuer, "profile")
    assert (await asking.verify(one)).groups == {"hpc", "gpu"}
    issuer.tokens.revoke(one)
    clock.advance(61)
    with pytest.raises(Unauthenticated, match="not any more"):
        await asking.verify(one)


async def test_an_opaque_token_of_nobody(
    issuer: Issuer, session: aiohttp.ClientSession, clock: HeldClock, secret: Path
) -> None:
    """What the issuer does not know is not active."""
    settings = IntrospectionSettings(client_id="importer", client_secret_file=str(secret))
    with pytest.raises(Unauthenticated):
        await verifier(issuer, session, clock, settings).verify("made-up")

"""The device flow's pace and ends, at an issuer that shares the test's clock."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from headgate.cli import device_flow
from headgate.cli.oauth import IssuerClient, IssuerFailure
from testbed.issuer.core import Fault, Issuer
from testbed.issuer.device import DeviceState
from tests.service.client.hurried_clock import HurriedClock


@pytest.fixture
async def oauth(hurried_issuer: Issuer, clock: HurriedClock) -> AsyncIterator[IssuerClient]:
    """A client of the issuer."""
    async with aiohttp.ClientSession() as session:
        yield IssuerClient(
            session=session,
            clock=clock,
            issuer=hurried_issuer.url,
            client_id="headgate-cli",
            audiences=("a", "b"),
            scopes=("openid", "offline_access"),
        )


def decide(issuer: Issuer, user_code: str, state: DeviceState) -> None:
    """What the person does in the browser."""
    code = issuer.devices.by_user_code(user_code)
    assert code is not None
    code.username, code.state = "alice", state


async def test_polling_keeps_the_issuers_pace(
    oauth: IssuerClient, hurried_issuer: Issuer, clock: HurriedClock
):
    """`slow_down` adds five seconds to the interval, for good (RFC 8628, section 3.5)."""
    code = await device_flow.start(oauth)
    # The issuer believes that it was asked a moment ago: the first question comes too soon.
    known = hurried_issuer.devices.by_user_code(code.user_code)
    assert known is not None
    known.polled = clock.monotonic() + 0.5

    def approve_late() -> None:
        decide(hurried_issuer, code.user_code, DeviceState.APPROVED)

    hurried_issuer.faults.append(Fault("/token", status=0, after=2, action=approve_late))
    login = await device_flow.finish(oauth, code)
    assert clock.slept == [1.0, 6.0, 6.0]
    assert login.refresh_token
    assert login.expires_at is not None


async def test_an_outage_slows_polling_down(
    oauth: IssuerClient, hurried_issuer: Issuer, clock: HurriedClock
):
    """A cut connection and a 503 double the interval and end nothing."""
    code = await device_flow.start(oauth)

    def approve() -> None:
        decide(hurried_issuer, code.user_code, DeviceState.APPROVED)

    hurried_issuer.faults += [
        Fault("/token", status=-1),
        Fault("/token", status=503),
        Fault("/token", status=0, action=approve),
    ]
    await device_flow.finish(oauth, code)
    assert clock.slept == [1.0, 2.0, 4.0]


async def test_denial_ends_the_flow(oauth: IssuerClient, hurried_issuer: Issuer):
    """A person's no is final."""
    code = await device_flow.start(oauth)
    decide(hurried_issuer, code.user_code, DeviceState.DENIED)
    with pytest.raises(IssuerFailure, match="denied") as caught:
        await device_flow.finish(oauth, code)
    assert caught.value.error == "access_denied"


async def test_a_code_that_nobody_approves_expires(oauth: IssuerClient, clock: HurriedClock):
    """The flow ends with the code's lifetime."""
    code = await device_flow.start(oauth)
    with pytest.raises(IssuerFailure, match="expired"):
        await device_flow.finish(oauth, code)
    assert clock.monotonic() <= code.expires_in + 10


async def test_an_unknown_client_is_a_sentence(hurried_issuer: Issuer, clock: HurriedClock):
    """The issuer's refusal is put in words."""
    async with aiohttp.ClientSession() as session:
        oauth = IssuerClient(
            session=session,
            clock=clock,
            issuer=hurried_issuer.url,
            client_id="nobody",
            audiences=(),
        )
        with pytest.raises(IssuerFailure, match="does not know this client"):
            await device_flow.start(oauth)


async def test_an_issuer_under_another_name_is_refused(hurried_issuer: Issuer, clock: HurriedClock):
    """A discovery document of another issuer is not used."""
    async with aiohttp.ClientSession() as session:
        oauth = IssuerClient(
            session=session,
            clock=clock,
            issuer=hurried_issuer.url.rstrip("/"),
            client_id="headgate-cli",
            audiences=(),
        )
        with pytest.raises(IssuerFailure, match="calls itself"):
            await device_flow.start(oauth)


@pytest.mark.parametrize(
    "endpoint", ["authorization_endpoint", "device_authorization_endpoint", "jwks_uri"]
)
@pytest.mark.parametrize(
    "address", ["file:///etc/passwd", "vscode://evil.ext/run", "--remote=evil", "http://evil.test/"]
)
async def test_an_issuer_names_https_addresses_only(
    oauth: IssuerClient, endpoint: str, address: str
):
    """The browser is not handed whatever a hostile issuer has in its discovery document."""
    document = {
        "issuer": oauth.issuer,
        "token_endpoint": f"{oauth.issuer}token",
        endpoint: address,
    }
    with pytest.raises(IssuerFailure, match=f"{endpoint} is not https"):
        oauth._checked(document)


@pytest.mark.parametrize(
    "more",
    [
        {"token_endpoint": 5},
        {"jwks_uri": ["x"]},
        {"token_endpoint": "https://iam.example.org:99999999/"},
        {"authorization_endpoint": "https://["},
        {"grant_types_supported": 5},
    ],
)
async def test_an_issuers_odd_addresses_are_a_sentence(
    oauth: IssuerClient, more: dict[str, object]
):
    """Numbers, lists and ports beyond all are no addresses, and a number is no list of grants."""
    document = {"issuer": oauth.issuer, "token_endpoint": f"{oauth.issuer}token"}
    with pytest.raises(IssuerFailure):
        oauth._checked({**document, **more})

"""Logging in with a browser on another device: the device authorization grant (RFC 8628)."""

from dataclasses import dataclass
from http import HTTPStatus

from authlib.oauth2.rfc8628 import DEVICE_CODE_GRANT_TYPE

from headgate.cli.logins import Login
from headgate.cli.oauth import AWAY, Demand, IssuerClient, IssuerFailure, number

DEFAULT_INTERVAL_SECONDS = 5.0
SLOWER_SECONDS = 5.0
LONGEST_INTERVAL_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """A started device flow (RFC 8628, section 3.2). `expires_in` and `interval` are seconds."""

    device_code: str
    user_code: str
    verification_uri: str
    verification_uri_complete: str
    expires_in: float
    interval: float


async def start(oauth: IssuerClient, demand: Demand | None = None) -> DeviceCode:
    """Begin a device flow: what to show to the person (RFC 8628, section 3.1).

    Raises:
        IssuerFailure: the issuer has no device flow, or refuses this client or its scopes.
    """
    endpoints = await oauth.endpoints()
    if not endpoints.device_authorization:
        raise IssuerFailure(
            f"The issuer {oauth.issuer} offers no device flow.",
            advice="Log in where a browser is, or get a token in another way and set "
            "HEADGATE_TOKEN.",
        )
    form = {
        "client_id": oauth.client_id,
        "scope": " ".join(oauth.scopes),
        "audience": oauth.audience,
        **(demand or Demand()).form(),
    }
    status, document = await oauth.call(
        "POST", endpoints.device_authorization, {k: v for k, v in form.items() if v}
    )
    if status != HTTPStatus.OK:
        raise oauth.refusal(status, document)
    page = document.get("verification_uri") or document.get("verification_url") or ""
    return DeviceCode(
        device_code=str(document.get("device_code") or ""),
        user_code=str(document.get("user_code") or ""),
        verification_uri=str(page),
        verification_uri_complete=str(document.get("verification_uri_complete") or ""),
        expires_in=number(document.get("expires_in"), 600.0),
        interval=number(document.get("interval"), DEFAULT_INTERVAL_SECONDS),
    )


async def finish(oauth: IssuerClient, code: DeviceCode) -> Login:
    """Wait until the person has decided (RFC 8628, sections 3.4 and 3.5).

    Raises:
        IssuerFailure: denied, or the code expired first.
    """
    interval = min(max(code.interval, 0.1), LONGEST_INTERVAL_SECONDS)
    ends = oauth.clock.monotonic() + code.expires_in
    while oauth.clock.monotonic() < ends:
        await oauth.clock.sleep(interval)
        try:
            return (await oauth.grant(DEVICE_CODE_GRANT_TYPE, device_code=code.device_code)).login
        except IssuerFailure as failure:
            if failure.error == "slow_down":
                interval += SLOWER_SECONDS
            elif failure.error == AWAY:
                # A connection that times out: reduce the pace (section 3.5).
                interval = min(interval * 2, LONGEST_INTERVAL_SECONDS)
            elif failure.error != "authorization_pending":
                raise
    raise IssuerFailure("The code expired before it was approved.", error="expired_token")

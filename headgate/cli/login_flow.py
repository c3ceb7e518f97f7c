"""Logging in the way that suits the place: the browser here, or one on any device."""

from collections.abc import Mapping

from headgate.cli import code_flow, device_flow
from headgate.cli.device_flow import DeviceCode
from headgate.cli.logins import Login
from headgate.cli.oauth import Demand, IssuerClient, IssuerFailure
from headgate.cli.screen import Screen
from headgate.cli.wording import harmless

NOT_THIS_WAY = frozenset({"unauthorized_client", "unsupported_response_type"})


async def log_in(
    oauth: IssuerClient,
    demand: Demand,
    *,
    screen: Screen,
    environ: Mapping[str, str],
    as_json: bool,
    device: bool = False,
) -> Login:
    """A login as strong as demanded; `device`: with a browser elsewhere, whatever is here.

    With `as_json` one line of standard output says what a person has to open.

    Raises:
        IssuerFailure: denied, or nobody came.
    """
    here = not device and code_flow.has_browser(environ)
    if here and (await oauth.endpoints()).authorization:

        def show(page: str) -> None:
            _show_page(screen, page, as_json=as_json)

        try:
            return await code_flow.log_in(oauth, demand, show=show)
        except IssuerFailure as failure:
            if failure.error not in NOT_THIS_WAY:
                raise
    code = await device_flow.start(oauth, demand)
    _show_code(screen, code, as_json=as_json)
    if as_json or not screen.err.is_terminal:
        return await device_flow.finish(oauth, code)
    with screen.err.status("Waiting for your approval in the browser"):
        return await device_flow.finish(oauth, code)


def _show_page(screen: Screen, page: str, *, as_json: bool) -> None:
    if as_json:
        screen.json({"authorization_uri": page})
        return
    screen.note("Sign in in the browser that opens now; if none does, open this page on this")
    screen.note("machine, or press Ctrl-C and add --device:")
    screen.address(page)


def _show_code(screen: Screen, code: DeviceCode, *, as_json: bool) -> None:
    if as_json:
        screen.json(
            {
                "verification_uri": code.verification_uri,
                "verification_uri_complete": code.verification_uri_complete,
                "user_code": code.user_code,
                "expires_in": code.expires_in,
            }
        )
        return
    page = code.verification_uri_complete or code.verification_uri
    screen.note("Open this page in a browser, on any device:")
    screen.address(page)
    screen.qr(page)
    screen.note("and check that it shows the code ", (harmless(code.user_code), "bold"))
    screen.note("")

"""Logging in with the browser of this machine: authorization code with PKCE (RFC 7636, 8252)."""

import asyncio
import secrets
import sys
import webbrowser
from collections.abc import Callable, Mapping

from authlib.common.security import generate_token
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
from authlib.oauth2.rfc7636 import create_s256_code_challenge

from headgate.cli import id_token
from headgate.cli.logins import Login
from headgate.cli.loopback import listening
from headgate.cli.oauth import Demand, IssuerClient, IssuerFailure

LOGIN_SECONDS = 600.0
_VERIFIER_LENGTH = 64


def has_browser(environ: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Whether a browser can be opened where the person sits: not over SSH, not without a screen."""
    if any(environ.get(name) for name in ("SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY")):
        return False
    if platform == "darwin" or environ.get("BROWSER"):
        return True
    return bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))


async def log_in(
    oauth: IssuerClient,
    demand: Demand,
    *,
    show: Callable[[str], None],
    browse: Callable[[str], bool] = webbrowser.open,
) -> Login:
    """A login by the browser; `show` is given the page's address, in case that none opens.

    Raises:
        IssuerFailure: denied, answered by somebody else, or nobody came within ten minutes.
    """
    endpoints = await oauth.endpoints()
    state, nonce = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    verifier = generate_token(_VERIFIER_LENGTH)
    async with listening(state) as loopback:
        page = prepare_grant_uri(
            endpoints.authorization,
            oauth.client_id,
            "code",
            redirect_uri=loopback.redirect_uri,
            scope=" ".join(oauth.scopes),
            state=state,
            nonce=nonce,
            code_challenge=create_s256_code_challenge(verifier),
            code_challenge_method="S256",
            audience=oauth.audience or None,
            **demand.form(),
        )
        show(page)
        await asyncio.to_thread(browse, loopback.start(page))
        try:
            answer = await loopback.answer(LOGIN_SECONDS)
        except TimeoutError as error:
            raise IssuerFailure(
                "Nobody came back from the browser.",
                error="expired_token",
                advice="Run the command again with --device, and use a browser anywhere.",
            ) from error
    _check_sender(oauth, answer, named=endpoints.names_itself)
    if "code" not in answer:
        raise oauth.refusal(400, dict(answer))
    granted = await oauth.grant(
        "authorization_code",
        code=answer["code"],
        redirect_uri=loopback.redirect_uri,
        code_verifier=verifier,
    )
    await id_token.check(oauth, granted.id_token, nonce=nonce, demand=demand)
    return granted.login


def _check_sender(oauth: IssuerClient, answer: Mapping[str, str], *, named: bool) -> None:
    """Refuse an answer of another issuer than the one that was asked (RFC 9207, section 2.4)."""
    sender = answer.get("iss")
    if sender != oauth.issuer and (named or sender is not None):
        raise IssuerFailure(
            f"The answer came from {sender or 'an unknown issuer'}, not from {oauth.issuer}; "
            "nothing was kept.",
            error="mixed_up",
        )

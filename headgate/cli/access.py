"""The verbs around a login: login, logout, whoami."""

import base64
import binascii
from typing import Any

import aiohttp
import click
import msgspec

from headgate.cli.failures import CommandFailure
from headgate.cli.invocation import Invocation, invocation
from headgate.cli.logins import Login
from headgate.cli.oauth import DeviceCode, IssuerClient, IssuerFailure
from headgate.cli.sites import SavedSite, normal
from headgate.cli.token_sources import SavedLogin, issuer_client
from headgate.cli.wording import harmless, moment
from headgate.client import Client, Me, RetryPolicy, Site, SiteIssuer

FIRST_LOOK = RetryPolicy(deadline=8.0, attempt=5.0)
"""A mistyped address should not be retried for a minute."""


@click.command()
@click.argument("url")
@click.option("--issuer", default="", metavar="URL", help="Where the site trusts several issuers.")
@click.option("--client-id", default="", metavar="ID", help="Another OAuth client than the site's.")
@click.option("--insecure", is_flag=True, help="Allow plain HTTP to another machine.")
@invocation(site=False, token=False)
def login(run: Invocation, *, url: str, issuer: str, client_id: str, insecure: bool) -> None:
    """Log in at a site with a browser on any device.

    URL is the address of the site's gateway. The site is remembered, and used by later commands.

    With --json: two lines, first {"verification_uri", "verification_uri_complete", "user_code",
    "expires_in"}, and when the login is done {"site", "issuer", "expires_at", "me"}.
    """
    run.run(_login(run, url=normal(url), issuer=issuer, client_id=client_id, insecure=insecure))


async def _login(run: Invocation, *, url: str, issuer: str, client_id: str, insecure: bool) -> None:
    async with run.http() as session:
        bare = SavedSite(url=url, issuer="", client_id="", insecure=insecure)
        async with run.gateway(bare, session, policy=FIRST_LOOK) as client:
            chosen = _choose_issuer(url, await client.site(), issuer)
        site = SavedSite(
            url=url,
            issuer=chosen.issuer,
            client_id=client_id or chosen.client_id,
            scopes=tuple(chosen.scopes),
            audiences=tuple(chosen.audiences),
            insecure=insecure,
        )
        if not site.client_id:
            raise CommandFailure(
                f"{url} names no client of {site.issuer} for logging in from a terminal.",
                advice="Ask the site for one and give it with --client-id.",
            )
        oauth = issuer_client(site, session, run.clock)
        made = await _device_flow(run, oauth)
        run.logins.save(url, made)
        run.sites.remember(site)
        source = SavedLogin(site, run.logins, session, run.clock)
        async with run.gateway(site, session, source) as client:
            await _welcome(run, site, made, client)


def _choose_issuer(url: str, site: Site, wish: str) -> SiteIssuer:
    named = [i for i in site.issuers if i.issuer.rstrip("/") == wish.rstrip("/")]
    if wish and not named:
        raise CommandFailure(f"{url} does not trust the issuer {wish}.", advice=_issuers(site))
    candidates = named if wish else list(site.issuers)
    if not candidates:
        raise CommandFailure(
            f"{url} names no issuer to log in at.",
            advice="Get a token from the site's own issuer and set HEADGATE_TOKEN.",
        )
    if len(candidates) > 1:
        raise CommandFailure(f"{url} trusts several issuers.", advice=_issuers(site))
    return candidates[0]


def _issuers(site: Site) -> str:
    return "Give one with --issuer: " + ", ".join(i.issuer for i in site.issuers)


async def _device_flow(run: Invocation, oauth: IssuerClient) -> Login:
    code = await oauth.start()
    _show_code(run, code)
    if run.as_json or not run.screen.err.is_terminal:
        return await oauth.finish(code)
    with run.screen.err.status("Waiting for your approval in the browser"):
        return await oauth.finish(code)


def _show_code(run: Invocation, code: DeviceCode) -> None:
    if run.as_json:
        run.screen.json(
            {
                "verification_uri": code.verification_uri,
                "verification_uri_complete": code.verification_uri_complete,
                "user_code": code.user_code,
                "expires_in": code.expires_in,
            }
        )
        return
    page = code.verification_uri_complete or code.verification_uri
    run.screen.note("Open this page in a browser, on any device:")
    run.screen.address(page)
    run.screen.note("and check that it shows the code ", (harmless(code.user_code), "bold"))
    run.screen.note("")


async def _welcome(run: Invocation, site: SavedSite, made: Login, client: Client) -> None:
    me = await client.me()
    if run.as_json:
        run.screen.json(
            {"site": site.url, "issuer": site.issuer, "expires_at": made.expires_at, "me": me}
        )
        return
    run.screen.note(("Logged in", "bold green"), f" at {site.url}.")
    run.screen.me(me, site=site.url, token=_lifetime(run, made))
    missing = [a for a in site.audiences if a not in _audiences(made.access_token)]
    if missing and _audiences(made.access_token):
        run.screen.note(
            f"The issuer left out the audience {missing[0]}; some services may refuse the token."
        )


def _lifetime(run: Invocation, made: Login) -> str:
    if made.refresh_token:
        return "your login (renewed when needed)"
    until = moment(made.expires_at, run.clock.now()) if made.expires_at else "it is refused"
    return f"your login, until {until} (the issuer gave no refresh token)"


def _audiences(token: str) -> list[str]:
    """The audiences of a JWT, unverified: only to warn a person early. Empty if it is opaque."""
    try:
        payload = token.split(".")[1]
        claims: Any = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=="))
        audience = claims.get("aud")
    except (IndexError, binascii.Error, msgspec.DecodeError, UnicodeDecodeError, AttributeError):
        return []
    return [audience] if isinstance(audience, str) else [str(a) for a in audience or ()]


@click.command()
@invocation(token=False)
def logout(run: Invocation) -> None:
    """Forget the login of a site, and end it at the issuer.

    With --json: {"site", "was_logged_in", "revoked"}.
    """
    result = run.run(_logout(run))
    if run.as_json:
        run.screen.json(result)
    elif not result["was_logged_in"]:
        run.screen.note(f"You were not logged in at {result['site']}.")
    else:
        ended = "" if result["revoked"] else " The issuer did not confirm the end of the token."
        run.screen.note(f"Logged out of {result['site']}.{ended}")


async def _logout(run: Invocation) -> dict[str, Any]:
    site = run.site()
    saved = run.logins.load(site.url)
    # First here: a login that cannot be revoked shall at least be gone from this machine.
    run.logins.remove(site.url)
    revoked = False
    if saved is not None and site.issuer:
        async with run.http() as session:
            revoked = await _revoke(issuer_client(site, session, run.clock), saved)
    return {"site": site.url, "was_logged_in": saved is not None, "revoked": revoked}


async def _revoke(oauth: IssuerClient, saved: Login) -> bool:
    tokens = [token for token in (saved.refresh_token, saved.access_token) if token]
    try:
        return all([await oauth.revoke(token) for token in tokens])
    except (IssuerFailure, aiohttp.ClientError):
        return False


@click.command()
@invocation()
def whoami(run: Invocation) -> None:
    """Show who you are at the site, and your account or how to get one.

    With --json: the object of GET /v1/me.
    """
    me, site = run.run(_whoami(run))
    if run.as_json:
        run.screen.json(me)
    else:
        run.screen.me(me, site=site.url, token=run.token_label)


async def _whoami(run: Invocation) -> tuple[Me, SavedSite]:
    async with run.client() as client:
        return await client.me(), run.site()

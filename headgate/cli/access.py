"""The verbs around a login: login, logout, whoami."""

from collections.abc import Sequence
from typing import Any

import aiohttp
import click
import msgspec

from headgate.cli import private_files
from headgate.cli.failures import CommandFailure
from headgate.cli.invocation import Invocation, invocation
from headgate.cli.login_flow import log_in
from headgate.cli.logins import Login
from headgate.cli.oauth import DEFAULT_SCOPES, Demand, IssuerClient, IssuerFailure
from headgate.cli.saved_login import SavedLogin, Service, issuer_client
from headgate.cli.services import FIRST_LOOK
from headgate.cli.site_names import accepting, check_resource, check_scopes, check_services
from headgate.cli.sites import SavedSite, normal
from headgate.cli.ssh import config
from headgate.cli.ssh.identity import Identities
from headgate.cli.wording import harmless, moment
from headgate.client import Client, HeadgateError, Hold, Me, RetryPolicy, Site, SiteIssuer

AT_ONCE = RetryPolicy(deadline=3.0, attempt=3.0)
"""For what is good to know, and not worth a wait."""


@click.command()
@click.argument("url")
@click.option("--issuer", default="", metavar="URL", help="Where the site trusts several issuers.")
@click.option("--client-id", default="", metavar="ID", help="Another OAuth client than the site's.")
@click.option("--device", "--no-browser", "device", is_flag=True, help="Use a browser elsewhere.")
@click.option("--acr", multiple=True, metavar="VALUE", help="How strong the login must be.")
@click.option("--max-age", type=click.IntRange(0), metavar="SECONDS", help="How fresh it must be.")
@click.option("--accept", multiple=True, metavar="NAME", help="Let the site speak for it, too.")
@click.option("--scope", multiple=True, metavar="NAME", help="Ask for this right, too.")
@click.option("--insecure", is_flag=True, help="Allow plain HTTP to another machine.")
@invocation(site=False, token=False)
def login(
    run: Invocation,
    *,
    url: str,
    issuer: str,
    client_id: str,
    device: bool,
    acr: tuple[str, ...],
    max_age: int | None,
    accept: tuple[str, ...],
    scope: tuple[str, ...],
    insecure: bool,
) -> None:
    """Log in at a site: with the browser here, else with one on any device.

    URL is the address of the site's gateway. The site is remembered, and used by later commands.

    A site speaks for its own host and what is below it. Services, audiences and hosts beside that
    need --accept: a host, `*.domain`, or an audience. It is remembered until you log out, as is
    --scope, a right that headgate does not know.

    With --json: two lines, first {"authorization_uri"} where a browser is, else
    {"verification_uri", "verification_uri_complete", "user_code", "expires_in"}, and when the login
    is done {"site", "issuer", "expires_at", "me"}.
    """
    site = SavedSite(
        url=normal(url),
        issuer=issuer,
        client_id=client_id,
        insecure=insecure,
        accepted=accept,
        wished=scope,
    )
    run.run(_login(run, site, Demand(acr, max_age), device=device))


async def _login(run: Invocation, wish: SavedSite, demand: Demand, *, device: bool) -> None:
    wish = _with_what_was_accepted(run, wish)
    async with run.http() as session:
        async with run.gateway(wish, session, policy=FIRST_LOOK) as client:
            described = await client.site()
        chosen = _choose_issuer(wish.url, described, wish.issuer)
        site = _checked(run, wish, described, chosen)
        if not site.client_id:
            raise CommandFailure(
                f"{site.url} names no client of {site.issuer} for logging in from a terminal.",
                advice="Ask the site for one and give it with --client-id.",
            )
        made = await log_in(
            issuer_client(site, session, run.clock),
            demand,
            screen=run.screen,
            environ=run.places.environ,
            as_json=run.as_json,
            device=device,
        )
        run.logins.save(site.url, made)
        run.sites.remember(site)
        _forget_others(run, site, made)
        service = Service(audience=site.audience)
        source = SavedLogin(site, run.logins, session, run.clock, service)
        async with run.gateway(site, session, source) as client:
            await _welcome(run, site, made, client)


def _with_what_was_accepted(run: Invocation, wish: SavedSite) -> SavedSite:
    """The wish with what the person accepted of the site before."""
    known = next((site for site in run.sites.all() if site.url == wish.url), wish)
    return msgspec.structs.replace(
        wish,
        accepted=tuple(dict.fromkeys((*known.accepted, *wish.accepted))),
        wished=tuple(dict.fromkeys((*known.wished, *wish.wished))),
    )


def _checked(run: Invocation, wish: SavedSite, described: Site, chosen: SiteIssuer) -> SavedSite:
    """The site as it describes itself, if it names nothing that it may not.

    Raises:
        CommandFailure: it wants tokens for others, or rights that no site of ours needs.
    """
    domain = run.sites.domain(wish)
    check_resource(wish.url, described.url, domain)
    site = wish.described(described)
    check_services(wish.url, (*chosen.audiences, site.token_translator), domain)
    check_scopes(wish.url, chosen.scopes, wish.wished)
    scopes = chosen.scopes or (DEFAULT_SCOPES if wish.wished else ())
    return msgspec.structs.replace(
        site.within(domain),
        issuer=chosen.issuer,
        client_id=wish.client_id or chosen.client_id,
        scopes=tuple(dict.fromkeys((*scopes, *wish.wished))),
        audiences=tuple(chosen.audiences),
    )


def _forget_others(run: Invocation, site: SavedSite, made: Login) -> None:
    """Forget the site's SSH identities that are not of the person who has just logged in."""
    identities = Identities(run.places)
    written = config.path(run.places.ssh, identities.get(site.url, ""))
    for identity in identities.of(site.url):
        # One that is being renewed at this moment is waited for: it may be the last person's.
        with identity.locked():
            about = identity.about
            if about is None or about.person == made.whose():
                continue
            had = identity.certificate is not None
            identity.forget()
        if had and not run.as_json:
            run.screen.note(f"Forgot the SSH certificate for {harmless(about.account)} here.")
            if written.exists():
                run.screen.note(f"{written} names that account; run: headgate ssh-config --write")


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


async def _welcome(run: Invocation, site: SavedSite, made: Login, client: Client) -> None:
    me = await client.me()
    if run.as_json:
        run.screen.json(
            {"site": site.url, "issuer": site.issuer, "expires_at": made.expires_at, "me": me}
        )
        return
    run.screen.note(("Logged in", "bold green"), f" at {site.url}.")
    run.screen.me(me, site=site.url, token=_lifetime(run, made))
    if site.left_out:
        hosts = ", ".join(site.left_out)
        run.screen.note(
            f"{site.url} names {harmless(hosts)} as login nodes, not its own: left out."
        )
        accept = harmless(accepting(site.url, site.left_out))
        run.screen.note(f"If you know them to be the same site's: {accept}")


def _lifetime(run: Invocation, made: Login) -> str:
    if made.refresh_token:
        return "your login (renewed when needed)"
    until = moment(made.expires_at, run.clock.now()) if made.expires_at else "it is refused"
    return f"your login, until {until} (the issuer gave no refresh token)"


@click.command()
@invocation(token=False)
def logout(run: Invocation) -> None:
    """Forget the login of a site and its SSH certificate, and end it at the issuer.

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
    # First here: a login that cannot be revoked shall at least be gone from this machine. What is
    # being renewed at this moment is waited for, or it would be back a moment later.
    with private_files.lock(run.logins.path(site.url)):
        saved = run.logins.load(site.url)
        run.logins.remove(site.url)
    for identity in Identities(run.places).of(site.url):
        with identity.locked():
            identity.forget()
    run.sites.update(msgspec.structs.replace(site, accepted=(), wished=()))
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
    """Show who you are at the site, your account or how to get one, and what keeps you out.

    With --json: the object of GET /v1/me, and in "holds" what suspends you; without "holds" that
    is not known.
    """
    me, site, holds = run.run(_whoami(run))
    if run.as_json:
        known = {} if holds is None else {"holds": holds}
        run.screen.json({**msgspec.to_builtins(me), **known})
        return
    now = run.clock.now()
    certificates = [found.sentence(now) for found in Identities(run.places).of(site.url)]
    run.screen.me(
        me, site=site.url, token=run.token_label, certificate="; ".join(filter(None, certificates))
    )
    for hold in holds or ():
        place = f" in {hold.realm}" if hold.realm else ""
        since = f" since {moment(hold.created_at, now)}" if hold.created_at else ""
        run.screen.note(("Suspended", "bold red"), f"{place}{since}: {harmless(hold.reason)}")
        run.screen.note(f"  by {harmless(hold.owner)}, who can lift it")


async def _whoami(run: Invocation) -> tuple[Me, SavedSite, Sequence[Hold] | None]:
    async with run.client() as client:
        me = await client.me()
    return me, run.site(), await _holds(run)


async def _holds(run: Invocation) -> Sequence[Hold] | None:
    """What suspends the caller; None: the site's translator cannot be asked, or not with this."""
    source, quiet = run.source, run.quiet
    run.quiet = True  # nobody is asked to log in again for this
    try:
        async with run.translator(policy=AT_ONCE) as (translator, _):
            return await translator.holds()
    except (HeadgateError, CommandFailure):
        return None
    finally:
        run.source, run.quiet = source, quiet

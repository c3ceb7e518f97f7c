"""Getting a certificate from the site's token translator, for a key that stays here."""

import contextlib
from datetime import timedelta

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from headgate.cli import private_files
from headgate.cli.failures import CommandFailure
from headgate.cli.invocation import Invocation
from headgate.cli.places import Places
from headgate.cli.sites import SavedSite
from headgate.cli.ssh import files, hosts
from headgate.cli.ssh.identity import About, Identity, public_line
from headgate.cli.ssh.revocation import revoked
from headgate.cli.ssh.strictness import refuses_unknown
from headgate.cli.wording import harmless
from headgate.client import HeadgateError, RetryPolicy, TokenTranslator

TOKEN_MARGIN = timedelta(minutes=15)
"""A certificate lives no longer than the token: one that is about to end is renewed first."""
POLICY = RetryPolicy(deadline=15.0, attempt=8.0)
"""Somebody's ssh waits."""


async def renew(run: Invocation, identity: Identity, realm: str, *, force: bool = False) -> About:
    """Make an identity good for some time; what it is then.

    If it is, nobody is asked but the site, now and then, whether it has revoked the certificate.

    With a given token it asks always. If it fails then, or the identity is not the saved login's
    own, that identity is forgotten: ssh would offer it from the agent. `force`: for a new key.

    Raises:
        HeadgateError: refused, or nobody answers. CommandFailure: not logged in, no such service.
    """
    with identity.locked(), contextlib.ExitStack() as failed:
        about = identity.about
        if run.token_given() or not _of_the_login(run, about):
            failed.callback(identity.forget)
        elif about is not None and not force and identity.ready(run.clock.now()):
            if not await revoked(run, identity, about):
                return about
            if not (run.quiet or run.as_json):
                run.screen.note("Your SSH certificate was revoked; asking for another.")
            identity.forget()  # it opens nothing, and its key may be why
        about = await _certified(run, identity, realm, new_key=force)
        failed.pop_all()
    return about


def _of_the_login(run: Invocation, about: About | None) -> bool:
    """Whether the identity is the saved login's; what was got without a login is, if none is."""
    if about is None:
        return True
    login = run.logins.load(run.site().url)
    return about.person is not None and (login is None or login.whose() == about.person)


async def _certified(run: Invocation, identity: Identity, realm: str, *, new_key: bool) -> About:
    before = identity.about
    if before is not None and before.site.url != run.site().url:
        raise CommandFailure(
            f"{identity.directory} is for {before.site.url}, not for {run.site().url}."
        )
    async with run.translator(TOKEN_MARGIN, POLICY) as (translator, site):
        person = await run.person()
        same = before is not None and before.person == person
        key = identity.key() if same and not new_key else Ed25519PrivateKey.generate()
        made = await translator.certificate(public_line(key), realm=realm or None)
        if await run.person() != person:
            raise CommandFailure("The token became somebody else's meanwhile.", advice="Try again.")
        about = About(
            site=site,
            realm=realm or made.realm,
            account=made.account,
            person=person,
            login=str(run.logins.path(site.url)),
        )
        identity.keep(key, made.certificate.strip(), about, run.clock.now())
        await _learn_hosts(run, identity, site, translator)
    return about


async def _learn_hosts(
    run: Invocation, identity: Identity, site: SavedSite, translator: TokenTranslator
) -> None:
    try:
        published = await translator.known_hosts()
    except HeadgateError as error:
        if not run.quiet:
            run.screen.note(f"The site's host keys could not be read: {harmless(error)}")
        return
    if published is None:
        private_files.remove(identity.path(files.KNOWN_HOSTS))
        return
    lines, foreign = hosts.own(hosts.known_hosts(published), run.sites.domain(site))
    if foreign and not run.quiet:
        run.screen.note(
            f"{site.url} publishes host keys for {harmless(', '.join(foreign))}, which is not its "
            "own: left out."
        )
    content = "".join(f"{line}\n" for line in lines).encode()
    if len(content) > private_files.MAX_BYTES:
        raise CommandFailure("The site publishes more host keys than can be right.")
    private_files.write(identity.path(files.KNOWN_HOSTS), content)


async def use(
    places: Places, identity: Identity, about: About, host: str, port: int | None = None
) -> hosts.Use:
    """How ssh uses the identity at a host; `port` None: the one that the site names, else 22."""
    named = [node.port for node in about.site.login_nodes if node.host == host]
    at = port or next(iter(named), hosts.DEFAULT_PORT)
    content = private_files.read(identity.path(files.KNOWN_HOSTS))
    lines = hosts.known_hosts(content.decode(errors="replace")) if content else ()
    return hosts.Use(
        node=hosts.Node(host, at, hosts.vouched(lines, host, at)),
        account=about.account,
        directory=str(identity.directory),
        known_hosts=str(identity.path(files.KNOWN_HOSTS)) if lines else "",
        strict=await refuses_unknown(places, host),
    )

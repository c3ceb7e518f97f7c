"""The verbs around SSH: ssh, ssh-config, ssh-renew."""

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from headgate.cli import private_files
from headgate.cli.failures import CommandFailure
from headgate.cli.invocation import Invocation, invocation
from headgate.cli.site_names import FOREIGN, accepting
from headgate.cli.sites import SavedSite
from headgate.cli.ssh import arguments as ssh_arguments
from headgate.cli.ssh import config, hosts
from headgate.cli.ssh.identity import About, Identities, Identity
from headgate.cli.ssh.renewal import renew, use
from headgate.cli.ssh.revocation import revoked
from headgate.cli.wording import harmless, moment

_REALM = click.option("--realm", default="", metavar="NAME", help="Where a site has several.")


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("-p", "--port", type=click.IntRange(1, 65535), help="Instead of the site's own.")
@click.option("-l", "--user", default="", help="Instead of your account.")
@_REALM
@click.argument("host")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@invocation()
def ssh(
    run: Invocation,
    *,
    host: str,
    arguments: tuple[str, ...],
    port: int | None,
    user: str,
    realm: str,
) -> None:
    """Log in at HOST with a certificate that your token becomes, or run a command there.

    All after HOST goes to ssh as it is: its own options, then the command. The exit status is
    ssh's. The private key stays in ssh-agent, or in a file of yours.

    With --json nothing is run: {"host", "port", "account", "valid_before", "command"}.
    """
    name, wished = _at(host)
    identity, about = run.run(_identity(run, name, realm))
    found = run.run(use(run.places, identity, about, name, port))
    settings = {**found.identity(), **found.checking(), **found.place()}
    if user or wished:
        settings["User"] = user or wished
    given = ssh_arguments.settings(arguments)
    for name_of_setting in ("Port", "User"):
        if name_of_setting.lower() in given:
            settings.pop(name_of_setting, None)
    options = [part for key, value in settings.items() for part in ("-o", f"{key}={value}")]
    argv = ["ssh", *options, name, *arguments]
    if run.as_json:
        until = identity.until()
        run.screen.json(
            {
                "host": name,
                "port": found.node.port,
                "account": settings.get("User"),
                "valid_before": until,
                "command": argv,
            }
        )
        return
    run.run(_become(argv))


async def _become(argv: list[str]) -> None:
    program = shutil.which(argv[0])
    if program is None:
        raise CommandFailure("There is no ssh here; install OpenSSH's client.")
    os.execv(program, argv)  # noqa: S606 - an argv list; we become ssh, terminal and status and all


def _at(text: str) -> tuple[str, str]:
    user, _, host = text.rpartition("@")
    if not hosts.HOST.fullmatch(host) or (user and not hosts.ACCOUNT.fullmatch(user)):
        raise click.BadParameter(f"{text!r} is no host.", param_hint="HOST")
    return host, user


async def _identity(run: Invocation, host: str, realm: str) -> tuple[Identity, About]:
    """The identity for a host, ready to be used: of the site whose it is, else of the last."""
    if not run.site_named:
        _use_site_of(run, host)
    site = await _described(run)
    named = [node.realm for node in site.login_nodes if node.host == host]
    wanted = realm or next(iter(named), "") or _first_realm(site)
    identity = Identities(run.places).get(site.url, wanted)
    return identity, await renew(run, identity, wanted)


def _use_site_of(run: Invocation, host: str) -> None:
    sites = run.sites.all()
    naming = [s for s in sites if any(node.host == host for node in s.login_nodes)]
    owning = [s for s in sites if run.sites.domain(s).has_host(host)]
    if found := (*naming, *owning):
        run.use(found[0])
        return
    for site in sites:
        if host in site.left_out:
            raise CommandFailure(
                f"{site.url} names {host} as a login node, but it is not the site's own.",
                advice=f"If you know it to be: {accepting(site.url, [host])}",
                code=FOREIGN,
            )


async def _described(run: Invocation) -> SavedSite:
    async with run.http() as session:
        return await run.described(run.site(), session)


def _first_realm(site: SavedSite) -> str:
    return site.login_nodes[0].realm if site.login_nodes else ""


@click.command("ssh-renew")
@click.option("--quiet", is_flag=True, help="Say nothing but failures, ask nobody anything.")
@click.option("--force", is_flag=True, help="A new key and certificate, even if all is good.")
@_REALM
@click.argument("directory", required=False, type=click.Path(path_type=Path))
@invocation()
def ssh_renew(
    run: Invocation, *, quiet: bool, force: bool, realm: str, directory: Path | None
) -> None:
    """Renew the SSH certificate if it ends soon. A stock ssh runs this, see ssh-config.

    DIRECTORY is what ssh-config wrote; without it, the one of the site.

    With --json: {"site", "realm", "account", "valid_before", "key"}; key is `agent` or `file`.
    """
    run.quiet = quiet
    identity, about = run.run(_renewed(run, directory, realm, force=force))
    if run.as_json:
        run.screen.json(_document(identity, about))
    elif not quiet:
        run.screen.note(f"SSH certificate for {identity.sentence(run.clock.now())}.")


async def _renewed(
    run: Invocation, directory: Path | None, realm: str, *, force: bool
) -> tuple[Identity, About]:
    identities = Identities(run.places)
    if directory is None:
        site = await _described(run)
        wanted = realm or _first_realm(site)
        identity = identities.get(site.url, wanted)
        return identity, await renew(run, identity, wanted, force=force)
    identity = identities.at(directory)
    known = identity.about
    if known is None:
        raise CommandFailure(
            f"{directory} holds no identity any more.", advice="Run: headgate ssh-config --write"
        )
    run.use(run.sites.find(known.site.url) or run.sites.within(known.site))
    return identity, await renew(run, identity, known.realm, force=force)


def _document(identity: Identity, about: About) -> dict[str, Any]:
    return {
        "site": about.site.url,
        "realm": about.realm,
        "account": about.account,
        "valid_before": identity.until(),
        "key": identity.where(),
    }


@click.command("ssh-config")
@click.option("--host", "patterns", multiple=True, help="More hosts of the site; * and ? stand in.")
@click.option("--write", is_flag=True, help="Write it below ~/.ssh, and offer to include it.")
@click.option("--yes", is_flag=True, help="With --write: include it without asking.")
@click.option("--status", is_flag=True, help="Show the certificates of this machine.")
@_REALM
@invocation()
def ssh_config(
    run: Invocation,
    *,
    patterns: tuple[str, ...],
    write: bool,
    yes: bool,
    status: bool,
    realm: str,
) -> None:
    """Make plain ssh, scp, rsync, git and VS Code log in with your token.

    Prints the configuration, or writes it. ssh then renews the certificate itself when needed.

    With --json: {"file", "config", "written", "included"}; of --status {"certificates": [...]}.
    """
    if status:
        run.run(_show(run))
        return
    path, text = run.run(_snippet(run, patterns, realm))
    if write:
        run.run(_write(run, path, text, yes=yes))
    if run.as_json:
        included = config.included(run.places.ssh)
        run.screen.json({"file": path, "config": text, "written": write, "included": included})
    elif not write:
        run.screen.output(text.encode())


async def _snippet(run: Invocation, patterns: Sequence[str], realm: str) -> tuple[str, str]:
    for pattern in patterns:
        if not hosts.PATTERN.fullmatch(pattern):
            raise CommandFailure(f"{pattern!r} is no pattern of host names.", code="usage")
        if not re.search(r"[A-Za-z0-9]", pattern):
            raise CommandFailure(f"{pattern!r} is every host there is.", code="usage")
    site = await _described(run)
    wanted = realm or _first_realm(site)
    by_host = {
        node.host: node.realm for node in site.login_nodes if hosts.HOST.fullmatch(node.host)
    }
    by_host |= dict.fromkeys(patterns, wanted)
    if site.left_out and not run.as_json:
        left_out = harmless(", ".join(site.left_out))
        run.screen.note(f"{site.url} names {left_out} as login nodes, not its own: left out.")
    if not by_host:
        raise CommandFailure(
            f"{site.url} names no login node of its own.",
            advice="Give one with --host.",
            code="no_host",
        )
    identities, uses, known = Identities(run.places), [], dict[str, About]()
    for host, place in by_host.items():
        identity = identities.get(site.url, place or wanted)
        if (place or wanted) not in known:
            known[place or wanted] = await renew(run, identity, place or wanted)
        uses.append(await use(run.places, identity, known[place or wanted], host))
    path = config.path(run.places.ssh, identities.get(site.url, ""))
    return str(path), config.snippet(site.url, uses, run.places.program)


async def _write(run: Invocation, path: str, text: str, *, yes: bool) -> None:
    private_files.write(Path(path), text.encode())
    if not run.as_json:
        run.screen.note(f"Wrote {path}.")
    if config.included(run.places.ssh):
        return
    main = run.places.ssh / "config"
    if yes or (run.places.attended and not run.as_json and _agreed(main)):
        config.include(run.places.ssh)
        if not run.as_json:
            run.screen.note(f"Added to {main}: {config.INCLUDE}")
    elif not run.as_json:
        run.screen.note(f"Put this at the top of {main}:")
        run.screen.note(f"  {config.INCLUDE}")


def _agreed(path: Path) -> bool:
    return click.confirm(f"Add `{config.INCLUDE}` at the top of {path}?", default=True, err=True)


async def _show(run: Invocation) -> None:
    now, rows, documents = run.clock.now(), [], []
    for identity in Identities(run.places).all():
        about, until = identity.about, identity.until()
        if about is None or until is None:
            continue
        withdrawn = until > now and await revoked(run, identity, about)
        documents.append({**_document(identity, about), "revoked": withdrawn})
        left = moment(until, now) if until > now else f"ended {moment(until, now)}"
        left = "revoked" if withdrawn else left
        key = {"agent": "ssh-agent", "file": str(identity.directory)}.get(identity.where(), "gone")
        nodes = ", ".join(node.host for node in about.site.login_nodes)
        rows.append((about.site.url, harmless(about.account), nodes or "-", left, key))
    if run.as_json:
        run.screen.json({"certificates": documents})
    elif rows:
        run.screen.table(("SITE", "ACCOUNT", "HOSTS", "UNTIL", "KEY"), rows)
    else:
        run.screen.note("No SSH certificates; run: headgate ssh HOST")

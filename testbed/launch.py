"""Bringing a site up and taking it down: for as long as its owner lives, or until told."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import msgspec
import structlog

from headgate.command import CommandError
from testbed import instances, login, registry, slurm, suite, zabbix
from testbed.components import Component
from testbed.control import Control, ControlError, Down
from testbed.folders import Folder
from testbed.namespace import WITH_PRIVATE_TMP, command
from testbed.passwd import join, private_etc
from testbed.processes import PATH
from testbed.requirements import require_machine
from testbed.services import prepare, users
from testbed.site import Addresses, Site
from testbed.venv import ensure_venv, repository
from testbed.waiting import until

log = structlog.get_logger(__name__)

_UP_SECONDS = 120.0
_DOWN_SECONDS = 20.0

SERVICES = frozenset({"issuer", "signer", "tokens", "accounts", "gateway", "frontdoor"})
"""The suite's own, by their components' names."""


@dataclass(frozen=True, slots=True)
class Options:
    """What may differ between sites.

    `services` are those of the suite that run on it; Slurm, sshd and the registry always do.
    """

    realm: str = "testbed"
    cluster: slurm.Cluster = field(default_factory=slurm.Cluster)
    services: frozenset[str] = SERVICES


@contextlib.asynccontextmanager
async def site(
    name: str = "", *, options: Options | None = None, repo: Path | None = None
) -> AsyncIterator[Site]:
    """A whole site while the context is open; it also ends when this process does.

    Raises:
        InstanceError: not root, packages are missing, or a site of that name is up.
        CommandError: a part could not be prepared.
        ControlError: a component did not get ready; with its last words.
    """
    launched = await _launch(name, options or Options(), repo or repository(), owned=True)
    try:
        yield launched.site
    finally:
        await _end(launched.instance, launched.process)


async def up(name: str, *, options: Options | None = None, repo: Path | None = None) -> Site:
    """A whole site that lives until somebody takes it down; raises as `site` does."""
    launched = await _launch(name, options or Options(), repo or repository(), owned=False)
    launched.instance.release()
    return launched.site


@dataclass(frozen=True, slots=True)
class _Launched:
    site: Site
    instance: instances.Instance
    process: asyncio.subprocess.Process


async def _launch(name: str, options: Options, repo: Path, *, owned: bool) -> _Launched:
    require_machine()
    venv = await ensure_venv(repo)
    instance = instances.create(name)
    process: asyncio.subprocess.Process | None = None
    try:
        built, components = await _prepare(instance, options, venv, repo)
        process = await _spawn(built, instance.claims, owned=owned)
        await _bring_up(built, components, process, repo)
    except BaseException:  # also Ctrl-C: half a site is not left behind
        await _end(instance, process)
        raise
    return _Launched(built, instance, process)


async def _prepare(
    instance: instances.Instance, options: Options, venv: Path, repo: Path
) -> tuple[Site, tuple[Component, ...]]:
    folder, ports = Folder(instance.folder), instance.ports
    folder.path("venv").symlink_to(venv)
    for name in ("etc", "home", "log", "libexec"):
        folder.make(name)
    folder.write("libexec/with-private-tmp", WITH_PRIVATE_TMP, mode=0o755)
    await private_etc(folder.path("etc"), _system_users())
    session = repo / "gateway" / "session" / "headgate_session.py"
    workload, sshd, images = await asyncio.gather(
        slurm.prepare(folder, ports, options.cluster),
        login.prepare(folder, ports, realm=options.realm, session=session),
        registry.prepare(folder, ports),
    )
    for name in zabbix.PORTS:  # it may be started any time later
        ports.take(name)
    addresses = Addresses(
        name=instance.name,
        state=str(instance.folder),
        cluster=options.cluster.name,
        realm=options.realm,
        slurm_conf=slurm.conf_path(folder),
        ssh={
            "host": "127.0.0.1",
            "port": ports.take("sshd"),
            "known_hosts": str(folder.path("ssh", "known_hosts")),
        },
        registry=f"http://127.0.0.1:{ports.take('registry')}",
        image=registry.IMAGE,
        venv=str(venv),
        ports=ports.taken(),
    )
    plain = (*workload, sshd, *images)
    if not options.services:
        return Site(folder, addresses), plain
    services = _suite(folder, ports, options, addresses)
    # To hand its socket to the translator's group, the signer must be in it.
    join(folder.path("etc"), suite.SIGNER, suite.TOKENS)
    addresses = msgspec.structs.replace(
        addresses,
        issuer=services.addresses.issuer,
        gateway=services.addresses.gateway,
        token_translator=services.addresses.tokens,
        account_importer=services.addresses.accounts,
        frontdoor=_address(services.frontdoor) if "frontdoor" in options.services else {},
        ports=ports.taken(),
        users=tuple(str(person["username"]) for person in suite.PEOPLE),
    )
    chosen = (
        component
        for component in prepare(services)
        if component.name.split("-")[0] in options.services
    )
    return Site(folder, addresses), (*plain, *chosen)


def _address(service: suite.SshService | None) -> dict[str, str | int]:
    if service is None:
        return {}
    return {
        "host": "127.0.0.1",
        "port": service.port,
        "known_hosts": str(service.known_hosts),
        "audience": suite.audience_of(service),
    }


def _suite(
    folder: Folder, ports: instances.Ports, options: Options, site: Addresses
) -> suite.Suite:
    services = suite.Addresses.on(
        ports.take("issuer"), ports.take("tokens"), ports.take("accounts"), ports.take("gateway")
    )
    udocker = {
        "program": f"{site.venv}/bin/udocker",
        "registry": site.registry,
        "environment": registry.udocker_environment(folder),
    }
    return suite.Suite(
        files=folder,
        addresses=services,
        python=Path(site.venv) / "bin/python",
        realm=options.realm,
        session_program=login.session_program(folder),
        cluster={
            "name": site.cluster,
            "slurm_conf": site.slurm_conf,
            "poll_seconds": 1.0,
            "ssh": dict(site.ssh),
            "udocker": udocker,
        },
        frontdoor=suite.SshService(
            port=ports.take("frontdoor"), known_hosts=folder.path("ssh", "frontdoor_known_hosts")
        ),
    )


def _system_users() -> tuple[str, ...]:
    return (*slurm.users(), *login.users(), *registry.users(), *users())


async def _spawn(
    built: Site, claims: tuple[int, int], *, owned: bool
) -> asyncio.subprocess.Process:
    argv = command(Path(built.addresses.venv) / "bin/python", built.folder.root, owned=owned)
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    with built.path("log", "supervisor.log").open("ab") as output:
        # The claims go with it: as long as one of its processes lives, so does the site.
        return await asyncio.create_subprocess_exec(
            *argv,
            stdin=pipe if owned else nothing,
            stdout=output,
            stderr=output,
            cwd="/",
            env={"PATH": PATH, "LANG": "C.UTF-8"},
            pass_fds=claims,
            start_new_session=True,
        )


async def _bring_up(
    built: Site,
    components: tuple[Component, ...],
    process: asyncio.subprocess.Process,
    repo: Path,
) -> None:
    socket = built.path("control.sock")
    await until(lambda: socket.exists() or process.returncode is not None, seconds=_UP_SECONDS)
    if process.returncode is not None:
        words = built.path("log", "supervisor.log").read_text(encoding="utf-8")[-2000:]
        raise CommandError(f"the site's supervisor ended: {words}")
    await built.add(*components)
    if "tokens" in await built.status():
        await _trust(built)
        program = repo / "token_translator" / "krl_fetch.py"
        url = built.addresses.token_translator
        await built.add(login.krl_timer(built.folder, program=program, tokens=url))
    built.publish()


async def _trust(built: Site) -> None:
    """Give sshd the certificate authority's keys, as a site's administrator would."""
    url = f"{built.addresses.token_translator}/v1/ca"
    async with (
        aiohttp.ClientSession(raise_for_status=True) as session,
        session.get(url, headers={"Accept": "text/plain"}) as response,
    ):
        login.trust(built.folder, await response.text())


async def _end(instance: instances.Instance, process: asyncio.subprocess.Process | None) -> None:
    """Whatever happened: no process and no file is left."""
    if process and process.returncode is None:
        if process.stdin:
            process.stdin.close()  # the owner's end of its life
        else:
            with contextlib.suppress(ControlError):  # unshare(1) itself hears no TERM
                await Control(instance.folder / "control.sock").call(Down(), seconds=_DOWN_SECONDS)
        try:
            async with asyncio.timeout(_DOWN_SECONDS):
                await process.wait()
        except TimeoutError:
            log.warning("supervisor_killed", site=instance.name)
            process.kill()
            await process.wait()
    await asyncio.to_thread(shutil.rmtree, instance.folder, ignore_errors=True)
    instance.release()

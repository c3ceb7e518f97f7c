"""Where secrets of a run are, and what another user of the same machines can get at."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from testbed.caller import Caller
from testbed.site import Site

pytestmark = pytest.mark.site

MARK = "s3cret-value-of-a-job-4711"
IMAGE = {"container": {"image": "headgate/demo:latest"}}
SERVICES = ("gateway", "tokens", "signer", "accounts")
LARGEST = 100_000_000


def written(root: Path) -> Iterator[tuple[Path, bytes]]:
    """Every file of the site but home directories and image layers."""
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if Path(folder, name) != root / "home"]
        for name in names:
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink() and path.stat().st_size < LARGEST:
                yield path, path.read_bytes()


def holders(root: Path, needle: str) -> set[str]:
    """Files that hold a text, relative to the site's folder."""
    found = (path for path, content in written(root) if needle.encode() in content)
    return {str(path.relative_to(root)) for path in found}


@pytest.fixture(scope="module")
async def verbose(site: Site) -> AsyncIterator[Site]:
    """The site with its services at log level debug."""
    settings = {
        path: path.read_text()
        for path in (site.path("conf", f"headgate-{name}.toml") for name in SERVICES)
    }
    for path, text in settings.items():
        kept = [line for line in text.splitlines() if not line.startswith("log_level")]
        path.write_text("\n".join(['log_level = "debug"', *kept]))
    for name in SERVICES:
        await site.restart(name)
    yield site
    for path, text in settings.items():
        path.write_text(text)
    for name in SERVICES:
        await site.restart(name)


async def test_tokens_and_values_are_nowhere_they_need_not_be(verbose: Site):
    """After a run at level debug: no token in any file, a job's values in the gateway's alone."""
    site = verbose
    await site.import_accounts()
    token = await site.token("alice")
    async with aiohttp.ClientSession() as session:
        alice = Caller(session, site.addresses.gateway, token)
        job = await alice.submit(
            'echo "$SECRET"; while [ ! -e stop ]; do sleep 0.1; done',
            environment={"SECRET": MARK},
            **IMAGE,
        )
        native = (await alice.until(job["id"], "active"))["native_id"]
        output = f"{job['directory']}/stdout"
        while not (await site.exec(("cat", output), user="alice")).stdout:
            pass  # until the payload runs
        shown = await site.slurm("scontrol", "show", "job", native)
        script = await site.slurm("scontrol", "write", "batch_script", native, "-")
        processes = (await site.exec(("ps", "-eo", "args"))).stdout.decode()
        accounted = await site.slurm("sacct", "-a", "-P", "-o", "ALL", "-j", native)
        for text in (shown, script, processes, accounted):
            assert MARK not in text
            assert token not in text
        (await site.exec(("touch", f"{job['directory']}/stop"), user="alice")).checked()
        assert (await alice.until(job["id"]))["state"] == "completed"
    assert await asyncio.to_thread(holders, site.path(), token.rpartition(".")[2]) == set()
    kept = await asyncio.to_thread(holders, site.path(), MARK)
    assert {name.partition(".db")[0] for name in kept} <= {"var/headgate-gateway/gateway"}


async def test_another_user_sees_and_disturbs_nothing(site: Site, user: str):
    """A local user reads no job's files, keys, settings or databases, and cancels nothing."""
    await site.import_accounts()
    async with aiohttp.ClientSession() as session:
        alice = Caller(session, site.addresses.gateway, await site.token("alice"))
        job = await alice.submit(
            "while [ ! -e stop ]; do sleep 0.1; done", environment={"SECRET": MARK}
        )
        native = (await alice.until(job["id"], "active"))["native_id"]
        private = f"{job['directory']}/.headgate"
        secret = [site.path("ssh", "host_key"), site.path("var", "signer", "socket")]
        secret += [path for path in site.path("conf").iterdir() if path.name.startswith("headgate")]
        for path in (job["directory"], private, f"{private}/env", f"{private}/claim", *secret):
            for flag in ("-r", "-w"):
                done = await site.exec(("test", flag, str(path)), user=user)
                assert done.status == 1, (flag, path)
        for name in ("headgate-gateway", "headgate-tokens", "headgate-signer", "headgate-accounts"):
            found = await site.exec(("ls", str(site.path("var", name))), user=user)
            assert found.status != 0
        environments = "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'"
        seen = (await site.exec(("sh", "-c", environments), user=user)).stdout.decode()
        assert MARK not in seen
        script = await site.exec(("scontrol", "write", "batch_script", native, "-"), user=user)
        assert b"headgate" not in script.stdout
        await site.exec(("scancel", native), user=user)
        await site.exec(("scancel", f"--name=hg-{job['id']}"), user=user)
        assert (await alice.until(job["id"], "active"))["state"] == "active"
        (await site.exec(("touch", f"{job['directory']}/stop"), user="alice")).checked()
        assert (await alice.until(job["id"]))["state"] == "completed"

"""Files of a job through a real login node: the user's own, byte for byte, several at a time."""

import asyncio
import hashlib
import io
import os

import aiohttp
import pytest

from testbed.caller import Answer, Caller
from testbed.site import Site

pytestmark = pytest.mark.site


async def test_files_are_the_users_own_and_come_whole(site: Site):
    """20 MB up, seen by the job, down again, as alice's; others find nothing."""
    await site.import_accounts()
    content = os.urandom(20_000_000)
    async with aiohttp.ClientSession() as session:
        alice, bob = [
            Caller(session, site.addresses.gateway, await site.token(name))
            for name in ("alice", "bob")
        ]
        job = await alice.submit(
            "while [ ! -e in/data ]; do sleep 0.1; done; sha256sum < in/data; cp in/data out"
        )
        files = f"/v1/jobs/{job['id']}/files"
        assert (await alice("PUT", f"{files}/in/data", data=io.BytesIO(content))).status == 201
        ended = await alice.until(job["id"])
        assert ended["state"] == "completed"
        assert (await alice.output(ended)).split()[0] == hashlib.sha256(content).hexdigest()
        answers = await asyncio.gather(*(alice("GET", f"{files}/out") for _ in range(4)))
        assert all(answer.body == content for answer in answers)
        owner = await site.exec(("stat", "-c", "%U %a", f"{job['directory']}/in/data"))
        assert owner.stdout.decode().split() == ["alice", "600"]
        assert (await bob("GET", f"{files}/out")).status == 404


async def told(alice: Caller, path: str, status: int) -> Answer:
    """The answer once it has that status; the caller bounds the wait."""
    while (answer := await alice("GET", path)).status != status:  # noqa: ASYNC110 - HTTP's
        await asyncio.sleep(0.2)
    return answer


async def test_files_are_removed_after_their_time_without_anybodys_token(site: Site):
    """A gateway that was just started has no session: the sealed right alone removes them."""
    config = site.path("conf", "headgate-gateway.toml")
    before = config.read_text(encoding="utf-8")
    await site.import_accounts()
    async with aiohttp.ClientSession() as session:
        alice = Caller(session, site.addresses.gateway, await site.token("alice"))
        job = await alice.run("echo out; mkdir -m 0 closed; ln -s / root")
        assert "expires" not in job
        config.write_text(before.replace("[[clusters]]", "[[clusters]]\nfiles_days = 0.00001", 1))
        await site.restart("gateway")
        try:
            async with asyncio.timeout(30):
                gone = await told(alice, f"/v1/jobs/{job['id']}/files", 410)
        finally:
            config.write_text(before)
            await site.restart("gateway")
        assert gone.json["code"] == "files_removed"
        assert gone.json["files_removed_at"].startswith("20")
        assert (await alice("GET", f"/v1/jobs/{job['id']}/stdout")).status == 410
        shown = await alice("GET", f"/v1/jobs/{job['id']}")
        assert shown.json["files_removed_at"] == gone.json["files_removed_at"]
        left = await site.exec(("test", "-e", job["directory"]))
        assert left.status == 1


async def test_a_full_disk_is_a_failure_of_its_own_kind(site: Site):
    """A user who has no room left is told so; nothing of the job is started."""
    async with site.issuer() as control:
        await control.put_user("fulldisk", groups=["hpc"])
    await site.import_accounts()
    home = "/home/fulldisk/.headgate"
    (await site.exec(("mkdir", "-m", "700", home), user="fulldisk")).checked()
    uid = site.account("fulldisk").uid
    options = f"size=64k,uid={uid},mode=700"
    (await site.exec(("mount", "-t", "tmpfs", "-o", options, "tmpfs", home))).checked()
    fill = ("sh", "-c", f"head -c 1000000 /dev/zero > {home}/full")
    await site.exec(fill, user="fulldisk")
    async with aiohttp.ClientSession() as session:
        caller = Caller(session, site.addresses.gateway, await site.token("fulldisk"))
        job = await caller.run("echo ran")
        assert (job["state"], job["failure"]["kind"]) == ("failed", "quota")
        assert "native_id" not in job
        brought = await caller("PUT", f"/v1/jobs/{job['id']}/files/x", data=b"x" * 100_000)
        assert (brought.status, brought.json["code"]) == (422, "quota")

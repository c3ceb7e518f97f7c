"""Files of a job through a real login node: the user's own, byte for byte, several at a time."""

import asyncio
import hashlib
import io
import os

import aiohttp
import pytest

from testbed.caller import Caller
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

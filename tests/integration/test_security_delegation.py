"""A stolen service credential before the real site: it opens what was sealed, and nothing else."""

import asyncio
import json
import secrets
import struct
import subprocess
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from headgate.clock import SystemClock
from headgate.peers import PeerSigner
from testbed.caller import Caller
from testbed.site import Site

pytestmark = pytest.mark.site

PREFIX = struct.Struct(">II")
GATEWAY = "headgate-gateway"


@dataclass(frozen=True)
class Thief:
    """Somebody with the gateway's key file, a network and a shell of their own."""

    site: Site
    http: aiohttp.ClientSession
    folder: Path

    async def ask(self, path: str, body: object, *, audience: str = "", token: str = "") -> Any:
        """A call to the translator as the gateway; status and document."""
        url = self.site.addresses.token_translator
        signer = PeerSigner.from_file(
            instance=GATEWAY, path=self.site.path("conf", f"{GATEWAY}.key"), clock=SystemClock()
        )
        headers = signer.headers(audience or url)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        async with self.http.post(url + path, json=body, headers=headers) as answer:
            return answer.status, await answer.json()

    async def certificate(self, path: str, token: str = "", **body: str) -> Path:
        """A fresh key with a certificate beside it."""
        key = self.folder / secrets.token_hex(8)
        await asyncio.to_thread(
            subprocess.run, ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True
        )
        public = key.with_suffix(".pub").read_text()
        status, document = await self.ask(path, {**body, "public_key": public}, token=token)
        assert status == 201, document
        written = Path(f"{key}-cert.pub").write_text
        await asyncio.to_thread(written, document["certificate"])
        return key

    async def delegated(self, row: str, verb: str) -> Path:
        """What the key alone gets."""
        return await self.certificate("/v1/delegated-certificates", row=row, verb=verb)

    async def ssh(
        self, key: Path, user: str, *words: str, stdin: bytes = b"", program: str = "ssh"
    ) -> tuple[int, bytes, bytes]:
        """A stock client with that certificate."""
        ssh = self.site.addresses.ssh
        options = {
            "BatchMode": "yes",
            "CertificateFile": f"{key}-cert.pub",
            "ConnectTimeout": "10",
            "ExitOnForwardFailure": "yes",
            "GlobalKnownHostsFile": "/dev/null",
            "IdentitiesOnly": "yes",
            "IdentityFile": str(key),
            "Port": str(ssh["port"]),
            "StrictHostKeyChecking": "yes",
            "UserKnownHostsFile": str(ssh["known_hosts"]),
        }
        flags = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
        target = [f"{user}@127.0.0.1"] if user else []
        done = await asyncio.to_thread(
            subprocess.run,
            [program, "-F", "none", *flags, *target, *words],
            input=stdin,
            capture_output=True,
            check=False,
            timeout=60,
        )
        return done.returncode, done.stdout, done.stderr

    async def say(self, key: Path, header: dict[str, Any], body: bytes = b"") -> Any:
        """The last reply to one message in a session as alice."""
        nonce = secrets.token_hex(24)
        encoded = json.dumps({"id": 1, **header}).encode()
        sent = PREFIX.pack(len(encoded), len(body)) + encoded + body
        _, out, err = await self.ssh(key, "alice", nonce, stdin=sent)
        _, found, data = out.partition(f"HGS1 {nonce}\n".encode())
        assert found, err
        reply: dict[str, Any] = {}
        while data:
            head, size = PREFIX.unpack_from(data)
            reply = {**reply, **json.loads(data[PREFIX.size : PREFIX.size + head])}
            data = data[PREFIX.size + head + size :]
        return reply


@pytest.fixture(scope="module")
async def alice(site: Site) -> AsyncIterator[Caller]:
    """Alice, with a token for the gateway alone."""
    await site.import_accounts()
    token = await site.token("alice", audience=[site.addresses.gateway])
    async with aiohttp.ClientSession() as session:
        yield Caller(session, site.addresses.gateway, token)


@pytest.fixture
async def thief(site: Site, tmp_path: Path) -> AsyncIterator[Thief]:
    """With the gateway's key, and no token."""
    async with aiohttp.ClientSession() as session:
        yield Thief(site, session, tmp_path)


@pytest.fixture(scope="module")
async def jobs(alice: Caller) -> list[dict[str, Any]]:
    """Two jobs of alice's that have run."""
    return [await alice.run(f"echo {word}", environment={"WORD": word}) for word in ("one", "two")]


async def test_the_key_alone_asks_in_vain(thief: Thief, jobs: list[dict[str, Any]]):
    """Unknown rows, other verbs, other audiences and a token's place left empty get nothing."""
    path, public = "/v1/delegated-certificates", "ssh-ed25519 AAAA"
    good = {"row": jobs[0]["id"], "verb": "status", "public_key": public}
    key = await thief.delegated(jobs[0]["id"], "status")
    good["public_key"] = key.with_suffix(".pub").read_text()
    for change in ({"row": str(uuid.uuid4())}, {"verb": "exec"}, {"verb": "submit\n"}):
        assert (await thief.ask(path, {**good, **change}))[0] in {400, 404}
    for audience in (thief.site.addresses.gateway, thief.site.addresses.account_importer):
        assert (await thief.ask(path, good, audience=audience))[0] == 401
    body = {"public_key": good["public_key"], "profile": "session"}
    assert (await thief.ask("/v1/certificates", body))[0] == 401
    seal = {"row": str(uuid.uuid4()), "digest": "0" * 64, "realm": thief.site.addresses.realm}
    assert (await thief.ask("/v1/seals", seal))[0] == 401


async def test_a_users_token_does_not_make_it_a_login(thief: Thief, alice: Caller):
    """With a person's token too, a service gets the session program and no shell."""
    public = (
        (await thief.certificate("/v1/certificates", alice.token, profile="session"))
        .with_suffix(".pub")
        .read_text()
    )
    asked = {"public_key": public, "profile": "person"}
    assert (await thief.ask("/v1/certificates", asked, token=alice.token))[0] == 403


async def test_no_other_job_and_no_other_account(thief: Thief, jobs: list[dict[str, Any]]):
    """A certificate for one row shows no other row, no other directory and nobody else's."""
    (one, two), site = jobs, thief.site
    status = await thief.delegated(one["id"], "status")
    collect = await thief.delegated(one["id"], "collect")
    state = {"op": "state", "row": one["id"], "directory": one["directory"]}
    read = {**state, "op": "read", "file": "stdout"}
    assert (await thief.say(status, state))["state"]["exit"] == 0
    assert (await thief.say(collect, read))["ok"]
    for certificate, asked in ((status, state), (collect, read)):
        for change in (
            {"row": two["id"]},
            {"directory": two["directory"]},
            {"directory": site.account("alice").home},
        ):
            refused = await thief.say(certificate, {**asked, **change})
            assert refused["code"] == "not_allowed", (asked, change)
        for user in ("bob", "carol", "root", "nobody", "slurm", GATEWAY):
            code, out, err = await thief.ssh(certificate, user, "a" * 20)
            assert (code, out) == (255, b""), user
            assert b"Permission denied" in err
    for op in ("submit", "cancel", "withdraw", "read"):
        assert (await thief.say(status, {**state, "op": op}))["code"] == "not_allowed"


async def test_nothing_is_submitted_but_what_was_sealed(thief: Thief, jobs: list[dict[str, Any]]):
    """Another script under a sealed row's certificate never reaches sbatch."""
    one = jobs[0]
    submit = await thief.delegated(one["id"], "submit")
    script = b"#!/bin/sh\ntouch /home/alice/stolen\n"
    for only_digest_differs in (2, 1000):
        asked = {
            "op": "submit",
            "row": one["id"],
            "directory": one["directory"],
            "sbatch_args": [f"--job-name=hg-{one['id']}"],
            "script_bytes": len(script),
            "attempt": only_digest_differs,
        }
        assert (await thief.say(submit, asked, script))["code"] == "digest"
    named = await thief.site.slurm("squeue", "-a", "-h", "-t", "all", "--name", f"hg-{one['id']}")
    assert len(named.splitlines()) <= 1
    assert (await thief.site.exec(("test", "-e", "/home/alice/stolen"))).status == 1


async def test_a_session_certificate_is_no_shell(thief: Thief, jobs: list[dict[str, Any]]):
    """Commands, files, terminals, tunnels and agents: sshd itself or the program refuses each."""
    key = await thief.delegated(jobs[0]["id"], "collect")
    for words in (("id",), ("sh", "-i"), ("scp", "-f", "/etc/passwd"), ("a" * 20 + ";id",)):
        code, out, err = await thief.ssh(key, "alice", *words)
        assert (code, out) == (1, b""), words
        assert b"not for people" in err
    code, out, _ = await thief.ssh(key, "alice", "-s", "sftp")
    assert (code == 0, out) == (False, b"")
    ctld = str(thief.site.addresses.ports["slurmctld"])
    code, _, err = await thief.ssh(key, "", "-W", f"127.0.0.1:{ctld}", "alice@127.0.0.1")
    assert code == 255
    assert b"administratively prohibited" in err
    for flags in (("-N", "-R", "0:127.0.0.1:22"), ("-N", "-R", "/run/x:/run/y")):
        code, _, err = await thief.ssh(key, "", *flags, "alice@127.0.0.1")
        assert code == 255, flags
        assert b"forwarding failed" in err
    _, _, err = await thief.ssh(key, "", "-tt", "alice@127.0.0.1", "a" * 20)
    assert b"PTY allocation request failed" in err


async def test_nothing_of_it_after_a_block(thief: Thief, site: Site):
    """Once the registry denies somebody, neither key nor token nor certificate opens anything."""
    async with site.issuer() as control, aiohttp.ClientSession() as session:
        await control.put_user("mallory", groups=["hpc"])
        await site.import_accounts()
        token = await site.token("mallory")
        mallory = Caller(session, site.addresses.gateway, token)
        job = await mallory.run("echo x")
        own = await thief.certificate("/v1/certificates", token, profile="session")
        await control.change_user("mallory", active=False)
        await site.import_accounts()
        code, _, err = await thief.ssh(own, "mallory", "a" * 20)
        assert code == 255
        assert b"Permission denied" in err
        for verb in ("submit", "status", "cancel", "collect"):
            public = own.with_suffix(".pub").read_text()
            asked = {"row": job["id"], "verb": verb, "public_key": public}
            status, document = await thief.ask("/v1/delegated-certificates", asked)
            assert (status, document["code"]) == (403, "account_blocked")
        while (answer := await mallory("GET", f"/v1/jobs/{job['id']}/stdout")).status == 200:
            pass  # an answer of the registry is used again for two seconds
        # Whichever comes first: the registry's answer, or its block as a hold on the feed.
        assert answer.json["code"] in {"account_blocked", "suspended"}
        answer = await mallory("POST", "/v1/jobs", json={"executable": "id"})
        assert (answer.status, answer.json["code"]) == (403, "account_blocked")

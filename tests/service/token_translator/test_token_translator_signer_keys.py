"""Authorities' keys in a file, an agent and a token; wrong settings of them; and their rotation."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import ssh

from headgate.problems import Unavailable
from testbed.waiting import until
from tests.service.token_translator.authority_keys import (
    HOSTS,
    Agent,
    Token,
    both,
    call,
    in_agent,
)
from tests.service.token_translator.signer_requests import (
    connected,
    run,
    sign,
    sign_host,
    vouched,
)
from tests.service.token_translator.signer_requests import listed as revoked_now
from token_translator.keys import accept


def proved(certificate: str, line: str) -> ssh.SSHCertificate:
    """A certificate, its signature checked with the authority of a line."""
    read = ssh.load_ssh_public_identity(certificate.encode())
    assert isinstance(read, ssh.SSHCertificate)
    read.verify_cert_signature()
    assert read.signature_key() == ssh.load_ssh_public_key(line.encode())
    return read


async def test_keys_in_an_agent(make_signer: Any, agent: Agent) -> None:
    """Keys that are in an agent sign; without it there are no certificates, with it there are."""
    names = [await agent.add("rsa", "-b", "3072"), await agent.add("ed25519")]
    keys = both(*(in_agent(agent, name) for name in names))
    signer = await asyncio.to_thread(make_signer, keys, hostnames=HOSTS)
    async with connected(signer) as client:
        known = await client.authorities()
        proved((await sign(client)).certificate, known.user_ca[0])
        await vouched(client, known.user_ca[0])
        proved((await sign_host(client, "a.site.example")).certificate, known.host_ca[0])
        agent.kill()
        with pytest.raises(Unavailable):
            await sign(client)
    assert b"authority_away" in (signer.folder / "signer.log").read_bytes()


async def test_an_agent_that_was_restarted(make_signer: Any, agent: Agent) -> None:
    """A new agent at the old place, with the same key, is found again."""
    path = agent.socket.with_name("kept")
    await call("ssh-keygen", "-q", "-N", "", "-f", str(path), "-t", "ed25519")
    add = ("ssh-add", "-q", str(path))
    env = {"SSH_AUTH_SOCK": str(agent.socket)}
    await until(agent.socket.exists, seconds=10)
    await call(*add, env=env)
    name = accept(path.with_suffix(".pub").read_text()).fingerprint
    host = await agent.add("ecdsa")
    keys = both(in_agent(agent, name), in_agent(agent, host))
    signer = await asyncio.to_thread(make_signer, keys)
    agent.kill()
    again = Agent.start(agent.socket)
    try:
        await until(agent.socket.exists, seconds=10)
        await call(*add, env=env)
        async with connected(signer) as client:
            assert (await sign(client)).serial == 1
    finally:
        again.kill()


@pytest.mark.site  # softhsm2, opensc
@pytest.mark.parametrize("kind", ["EC:edwards25519", "EC:secp256r1", "EC:secp521r1", "rsa:3072"])
async def test_keys_in_a_token(make_signer: Any, token: Token, kind: str) -> None:
    """Key pairs of every kind that never leave a token sign for users and hosts."""
    await token.make("user-ca", kind)
    await token.make("host-ca", kind)
    keys = both(token.key("user-ca"), token.key("host-ca"))
    signer = await asyncio.to_thread(make_signer, keys, token.env, hostnames=HOSTS)
    async with connected(signer) as client:
        known = await client.authorities()
        assert known.user_ca[0].endswith(" user-ca")
        proved((await sign(client)).certificate, known.user_ca[0])
        await vouched(client, known.user_ca[0])
        proved((await sign_host(client, "a.site.example")).certificate, known.host_ca[0])


def rewrite(signer: Any, settings: Mapping[str, str]) -> None:
    """Change settings in a signer's file."""
    lines = signer.config.read_text().splitlines()
    lines = [line for line in lines if line.split(" = ")[0] not in settings]
    lines += [f"{name} = {value}" for name, value in settings.items()]
    signer.config.write_text("\n".join(lines))


async def refused_to_start(signer: Any, settings: Mapping[str, str]) -> str:
    """What `serve` says of other settings; its status is that of wrong ones."""
    await asyncio.to_thread(signer.stop)
    rewrite(signer, settings)
    done = await run(signer, "serve")
    assert done.returncode == 78
    return done.stderr


async def test_keys_that_are_not_as_the_settings_say(make_signer: Any, agent: Agent) -> None:
    """A missing agent or key, and a key for both users and hosts, keep the signer from starting."""
    signer = await asyncio.to_thread(make_signer)
    name = await agent.add("ed25519")
    other = "SHA256:" + "A" * 43
    user, host = (f'"{signer.folder}/{one}"' for one in ("user_ca", "host_ca"))
    for keys, words in (
        ((in_agent(agent, other), host), "none is SHA256:AAAA"),
        ((in_agent(agent, name).replace('/agent"', '/nobody"'), host), "No such file"),
        ((in_agent(agent, name), in_agent(agent, name)), "share a key"),
        ((user, user), "share a key"),
        ((f"{user}, {user}", host), "names a key twice"),
        ((host, user), "was the authority of"),
    ):
        assert words in await refused_to_start(signer, both(*keys))
    agent.socket.chmod(0o660)
    assert "use 0600" in await refused_to_start(signer, both(in_agent(agent, name), host))


@pytest.mark.site  # softhsm2, opensc
async def test_tokens_that_are_not_as_the_settings_say(make_signer: Any, token: Token) -> None:
    """A wrong PIN, token or label is said, and the PIN is not."""
    await token.make("user-ca", "EC:edwards25519")
    signer = await asyncio.to_thread(make_signer, None, token.env)
    host = f'"{signer.folder}/host_ca"'
    key = token.key("user-ca")
    (token.folder / "wrong").write_text("9999")
    (token.folder / "wrong").chmod(0o600)
    for changed, words in (
        (key.replace("/pin", "/wrong"), "PinIncorrect"),
        (key.replace('"headgate"', '"other"'), "NoSuchToken"),
        (key.replace('"user-ca"', '"other"'), "NoSuchKey"),
    ):
        said = await refused_to_start(signer, both(changed, host))
        assert words in said
        assert "9999" not in said
    (token.folder / "pin").chmod(0o644)
    assert "use 0600" in await refused_to_start(signer, both(key, host))


async def listed(signer: Any) -> dict[str, dict[str, Any]]:
    """What `authorities` says of each user authority, by the name of its file."""
    done = await run(signer, "authorities", "--json")
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {one["line"].split()[2]: one for one in found if one["role"] == "user"}


async def test_rotation(make_signer: Callable[..., Any]) -> None:
    """Add, distribute, switch, retire, revoke: each step as documented, and in the ledger."""
    signer = await asyncio.to_thread(make_signer)
    old, new = (f'"{signer.folder}/{name}"' for name in ("user_ca", "user_ca_2"))

    async def restarted(*user_ca: str) -> None:
        await asyncio.to_thread(signer.stop)
        lines = [
            line
            for line in signer.config.read_text().splitlines()
            if not line.startswith("user_ca")
        ]
        text = "\n".join([*lines, f"user_ca = [{', '.join(user_ca)}]"])
        signer.config.write_text(text)
        assert (await run(signer, "init")).returncode == 0
        await asyncio.to_thread(signer.start)

    async with connected(signer) as client:
        first = await sign(client)
    await restarted(old, new)
    async with connected(signer) as client:
        known = await client.authorities()
        assert [line.split()[2] for line in known.user_ca] == ["user_ca", "user_ca_2"]
        proved((await sign(client)).certificate, known.user_ca[0])
    await restarted(new, old)
    async with connected(signer) as client:
        switched = await client.authorities()
        assert switched.user_ca == known.user_ca[::-1]
        proved((await sign(client)).certificate, known.user_ca[1])
        gone = (await listed(signer))["user_ca"]
        assert (gone["state"], gone["live_certificates"]) == ("trusted", 2)
    revoke = ("--authority", gone["fingerprint"], "--reason", "rotated out")
    assert "in use" in (await run(signer, "revoke", *revoke)).stdout
    await restarted(new)
    async with connected(signer) as client:
        assert (await client.authorities()).user_ca == (known.user_ca[1],)
        assert (await listed(signer))["user_ca"]["state"] == "retired"
        done = await client.revoke(
            reason="rotated out", by="peer:tokens", authority=gone["fingerprint"]
        )
        now = await revoked_now(client)
        assert (now.version, now.keys) == (done.version, (gone["fingerprint"],))
    proved(first.certificate, known.user_ca[0])
    assert (await listed(signer))["user_ca"]["state"] == "revoked"
    said = await refused_to_start(signer, {"user_ca": f"[{new}, {old}]"})
    assert "is revoked" in said
    found = await run(signer, "ledger search", "--json")
    changes = [json.loads(line) for line in found.stdout.splitlines()]
    states = [
        one["state"]
        for one in changes
        if one["kind"] == "authority" and one["ca"] == gone["fingerprint"]
    ]
    assert states == ["signs", "trusted", "retired"]

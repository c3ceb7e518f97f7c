"""Logins at a real sshd's PAM with a one-time password, by way of the HTTP contract."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import unused_port

from headgate.command import Completed
from testbed.components import Component, Greets
from testbed.site import Site
from testbed.suite import TOKENS
from tests.integration.node_under_test import NodeUnderTest

pytestmark = pytest.mark.site

HOST = "login.testbed"
SERVICE = "sshd-pam-test"
STACK = """\
auth     required   pam_exec.so quiet expose_authtok {program}
auth     required   pam_permit.so
account  required   pam_unix.so
session  required   pam_permit.so
"""
PROGRAM = """\
#!/bin/sh
# What PAM modules of this kind do: the secret comes on standard input, and goes into a header.
{{ printf 'Authorization: Bearer '; tr -d '\\0'; echo; }} > "$0.$$"
curl --silent --fail --max-time 10 --get --data-urlencode "username=$PAM_USER" \\
  --header "@$0.$$" {url}/verify_user | grep -q '"verified":true'
status=$?
rm -f "$0.$$"
exit $status
"""


@dataclass(frozen=True, slots=True)
class Door:
    """An sshd that asks its PAM, which asks the translator."""

    node: NodeUnderTest
    http: aiohttp.ClientSession

    async def password(self, user: str) -> str:
        """A one-time password of somebody's."""
        site = self.node.site
        headers = {"Authorization": f"Bearer {await site.token(user)}"}
        url = f"{site.addresses.token_translator}/user/generate_otp"
        async with self.http.post(url, json={"host": HOST}, headers=headers) as answer:
            document: dict[str, Any] = await answer.json()
            assert answer.status == 201, document
            return str(document["one_time_password"])

    async def login(self, user: str, secret: str) -> Completed:
        """A stock ssh, where somebody types the secret at the prompt."""
        askpass = self.node.clients / f"askpass-{secrets.token_hex(4)}"
        await asyncio.to_thread(_program, askpass, f"#!/bin/sh\necho '{secret}'\n")
        return await self.node.ssh(
            askpass,
            user,
            "id",
            "-un",
            env={"SSH_ASKPASS": str(askpass), "SSH_ASKPASS_REQUIRE": "force"},
            BatchMode="no",
            NumberOfPasswordPrompts="1",
            PreferredAuthentications="keyboard-interactive",
        )


def _program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture(scope="module")
async def door(site: Site, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Door]:
    """The contract switched on at the translator, and a node that uses it."""
    await site.import_accounts()
    settings = site.path("conf", f"{TOKENS}.toml")
    before = settings.read_text()
    pam = f'[pam]\nrealm = "{site.addresses.realm}"\n'
    pam += f'nodes = [{{ name = "{HOST}", addresses = ["127.0.0.1"] }}]\n'
    settings.write_text(f"{before}\n{pam}")
    await site.restart("tokens")
    node = NodeUnderTest.make(site, "pam", unused_port(), tmp_path_factory.mktemp("clients"))
    program = node.write("verify", PROGRAM.format(url=site.addresses.token_translator), mode=0o755)
    # sshd asks for the PAM service of its own name.
    (node.folder / SERVICE).symlink_to("/usr/sbin/sshd")
    site.folder.write(f"etc/pam.d/{SERVICE}", STACK.format(program=program))
    node.write(
        "sshd_config",
        f"ListenAddress 127.0.0.1\nPort {node.port}\nPidFile none\nHostKey {node.folder}/host_key\n"
        f"HostCertificate {node.folder}/host_key-cert.pub\nUsePAM yes\nPubkeyAuthentication no\n"
        "KbdInteractiveAuthentication yes\nPasswordAuthentication no\n",
    )
    argv = (str(node.folder / SERVICE), "-D", "-e", "-f", str(node.folder / "sshd_config"))
    await site.add(Component(name="node-pam", argv=argv, ready=Greets(node.port, "SSH-2.0-")))
    async with aiohttp.ClientSession() as session:
        yield Door(node, session)
    await site.stop("node-pam")
    settings.write_text(before)
    await site.restart("tokens")


async def test_pam_login_with_a_one_time_password(door: Door) -> None:
    """26 letters at the prompt of a stock ssh log in, once."""
    secret = await door.password("alice")
    done = await door.login("alice", secret)
    assert (done.status, done.stdout) == (0, b"alice\n"), done.stderr
    assert (await door.login("alice", secret)).status == 255


async def test_pam_login_is_for_its_owner(door: Door) -> None:
    """Somebody else's password opens nobody's account, and is spoilt by the attempt."""
    secret = await door.password("alice")
    assert (await door.login("bob", secret)).status == 255
    assert (await door.login("alice", secret)).status == 255
    assert (await door.login("root", await door.password("alice"))).status == 255


async def test_pam_login_with_a_cut_token(door: Door) -> None:
    """What PAM cuts off at 512 bytes opens nothing: that is why there are one-time passwords."""
    token = await door.node.site.token("alice")
    assert 512 < len(token) < 1023, "longer than PAM hands on, short enough for a stock ssh"
    assert (await door.login("alice", token)).status == 255


async def test_pam_login_of_an_expired_account(door: Door) -> None:
    """The account stage is PAM's own: an expired account stays closed."""
    site = door.node.site
    (await site.exec(("chage", "-E", "0", "alice"))).checked()
    try:
        assert (await door.login("alice", await door.password("alice"))).status == 255
    finally:
        (await site.exec(("chage", "-E", "-1", "alice"))).checked()
    assert (await door.login("alice", await door.password("alice"))).status == 0

"""`node-setup --check` proves a node and finds what is wrong; second factors and other variants."""

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import tomli_w
from aiohttp.test_utils import unused_port

from testbed.site import Site
from tests.conftest import LocalUser
from tests.integration.node_under_test import NodeUnderTest, keygen, new_key

pytestmark = pytest.mark.site

GATEWAY, FRONT_DOOR, ELSEWHERE = "127.0.0.9", "127.0.0.8", "127.0.0.1"
PEOPLE, PASSWORD = "people", "correct horse battery"


@pytest.fixture(scope="module")
async def alice(site: Site, local_user: LocalUser) -> str:
    """Somebody of the range, in the group of all of them, with a password as second factor."""
    name = await local_user()
    (await site.exec(("groupadd", "--force", PEOPLE))).checked()
    (await site.exec(("usermod", "-aG", PEOPLE, name))).checked()
    (await site.exec(("chpasswd",), stdin=f"{name}:{PASSWORD}\n".encode())).checked()
    return name


@pytest.fixture(scope="module")
async def linked(site: Site) -> str:
    """An account outside of the range that was linked by hand."""
    argv = ("useradd", "--create-home", "--uid", "1600", "-p", "*", "linkedlea")
    (await site.exec(argv)).checked()
    return "linkedlea"


@pytest.fixture(scope="module")
async def node(
    site: Site, alice: str, linked: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[NodeUnderTest]:
    """A node with everything: principals in files, second factor, gateway, front door, groups."""
    assert alice != linked  # both are there when the files are written
    one = NodeUnderTest.make(
        site,
        "full",
        unused_port(),
        tmp_path_factory.mktemp("clients"),
        principals="files",
        linked=[linked],
        host_sets=["data"],
        gateways=[GATEWAY],
        front_doors=[FRONT_DOOR],
        second_factor=True,
        people_group=PEOPLE,
    )
    (one.folder / "principals.d").mkdir()
    one.more = "AcceptEnv LANG LC_*"
    await one.start()
    await confirm(one)
    yield one
    await site.stop("node-full")


async def confirm(node: NodeUnderTest, *, seconds_ago: float = 0.0) -> None:
    """The revocation list's status as `headgate-krl-fetch` leaves it."""
    status = {"confirmed_at": time.time() - seconds_ago, "version": 0}
    node.write("revoked_keys.status", json.dumps(status))


async def test_node_second_factor_for_people(node: NodeUnderTest, alice: str) -> None:
    """From anywhere else a certificate is not enough; with the second factor it is."""
    key = node.certify(node.principal(alice))
    assert not await node.opens(key, alice)
    askpass = node.clients / "askpass"
    askpass.write_text(f"#!/bin/sh\necho '{PASSWORD}'\n")
    askpass.chmod(0o755)
    env = {"SSH_ASKPASS": str(askpass), "SSH_ASKPASS_REQUIRE": "force"}
    done = await node.ssh(key, alice, "id", "-un", BatchMode="no", env=env)
    assert (done.status, done.stdout) == (0, f"{alice}\n".encode()), done.stderr
    done = await node.ssh(key, alice, "id", BatchMode="no", env=env, PubkeyAuthentication="no")
    assert done.status == 255


async def test_node_gateway_needs_no_second_factor(node: NodeUnderTest, alice: str) -> None:
    """From the gateway's address its certificate is enough, for a command and nothing more."""
    program = node.settings["session_program"]
    key = node.certify(node.principal(alice), options=(f"force-command={program}",))
    nonce = "nonce-of-a-test-1"
    done = await node.ssh(key, alice, nonce, BindAddress=GATEWAY)
    assert done.stdout.startswith(f"HGS1 {nonce}\n".encode()), done
    shell = node.certify(node.principal(alice), options=("permit-pty", "permit-port-forwarding"))
    done = await node.ssh(shell, alice, "-tt", "tty", BindAddress=GATEWAY)
    assert b"pts" not in done.stdout
    done = await node.ssh(shell, alice, "-W", f"127.0.0.1:{node.port}", BindAddress=GATEWAY)
    assert (done.status, done.stdout) == (255, b"")


async def test_node_front_door_relays_people(node: NodeUnderTest, alice: str) -> None:
    """From the front door's address certificates are enough too, and a terminal is a terminal."""
    key = node.certify(node.principal(alice), options=("permit-pty",))
    done = await node.ssh(key, alice, "-tt", "tty", BindAddress=FRONT_DOOR)
    assert done.stdout.startswith(b"/dev/pts/"), done


async def test_node_exception_is_for_certificates(
    node: NodeUnderTest, site: Site, linked: str
) -> None:
    """A plain key of a home folder meets no exception: from there it is not even looked at."""
    key = new_key(node.clients / "plain")
    public = key.with_suffix(".pub").read_text()
    home = f"/home/{linked}/.ssh"
    script = f"mkdir -p {home} && cat > {home}/authorized_keys"
    (await site.exec(("sh", "-c", script), user=linked, stdin=public.encode())).checked()
    for address in (GATEWAY, FRONT_DOOR):
        done = await node.ssh(
            key, linked, "id", BindAddress=address, CertificateFile="none", LogLevel="VERBOSE"
        )
        assert (done.status, b"partial success" in done.stderr) == (255, False)
    done = await node.ssh(key, linked, "id", CertificateFile="none", LogLevel="VERBOSE")
    assert b"partial success" in done.stderr


async def test_node_people_have_no_other_key(node: NodeUnderTest, site: Site, alice: str) -> None:
    """A key in the home folder of a member of the group does not count."""
    key = new_key(node.clients / "own")
    public = key.with_suffix(".pub").read_text()
    home = f"/home/{alice}/.ssh"
    script = f"mkdir -p {home} && cat > {home}/authorized_keys"
    (await site.exec(("sh", "-c", script), user=alice, stdin=public.encode())).checked()
    done = await node.ssh(key, alice, "id", CertificateFile="none", LogLevel="VERBOSE")
    assert (done.status, b"partial success" in done.stderr) == (255, False)


async def test_node_principals_in_files(node: NodeUnderTest, alice: str, linked: str) -> None:
    """Files open the accounts of the range and the linked one, and no others."""
    for user in (alice, linked):
        key = node.certify(node.principal(user))
        assert await node.opens(key, user, BindAddress=GATEWAY)
    for user in ("root", "slurm", "nobody"):
        key = node.certify(node.principal(user), user)
        assert not await node.opens(key, user, BindAddress=GATEWAY)


async def test_node_host_sets(node: NodeUnderTest, alice: str) -> None:
    """A certificate for a set of nodes opens a node of it, and one for another set does not."""
    realm = node.settings["realm"]
    mine, other = (node.certify(f"hg:{realm}@{name}:{alice}") for name in ("data", "gpu"))
    assert await node.opens(mine, alice, BindAddress=GATEWAY)
    assert not await node.opens(other, alice, BindAddress=GATEWAY)


async def test_node_check_proves_a_sound_node(node: NodeUnderTest, alice: str) -> None:
    """Everything is looked at, and nothing is found but what was not asked."""
    await confirm(node)
    found = await node.check("--account", alice)
    states = {name: finding["state"] for name, finding in found.items() if name != "status"}
    assert {name for name, state in states.items() if state != "ok"} == {"the translator"}, found
    assert found["status"] == 0
    assert {
        "sshd's authorities",
        "revocation list's file",
        "principals files",
        "session program runs",
    } < {*states}
    assert f"no second factor from a gateway, {GATEWAY}" in states


async def test_node_check_proves_the_command_too(node: NodeUnderTest, alice: str) -> None:
    """With a command for the principals, it is run for somebody of the range and all others."""
    config = (node.folder / "sshd_config").read_text()
    node.settings["principals"] = "command"
    try:
        node.write("node.toml", _toml(node))
        node.write("principals", await node.printed("principals"), mode=0o755)
        node.write("sshd_config", f"{node.more}\nHostKey {node.folder}/host_key\n"
                   f"{await node.printed('sshd')}")  # fmt: skip
        found = await node.check("--account", alice)
        assert found["principals of the range"]["state"] == "ok", found
        assert found["no principals outside of the range"]["state"] == "ok"
        assert found["status"] == 0
        text = (node.folder / "principals").read_text()
        node.write("principals", f"#!/bin/sh\necho hg:{node.settings['realm']}:$1\n", mode=0o755)
        found = await node.check("--account", alice)
        assert "root" in found["no principals outside of the range"]["detail"]
        node.write("principals", f"{text}\nexit 1\n", mode=0o755)
        found = await node.check("--account", alice)
        assert "sshd denies" in found["principals of the range"]["detail"]
        assert found["status"] == 1
    finally:
        node.settings["principals"] = "files"
        node.write("node.toml", _toml(node))
        node.write("sshd_config", config)


def _toml(node: NodeUnderTest) -> str:
    return tomli_w.dumps(node.settings)


@pytest.mark.parametrize(
    ("line", "check", "words"),
    [
        ("ForceCommand /bin/true", "no command of sshd's own from elsewhere", "forcecommand"),
        ("AcceptEnv *", f"variables from a gateway, {GATEWAY}", "LD_PRELOAD"),
        ("AcceptEnv BASH_*", "variables from elsewhere", "BASH_ENV"),
        ("TrustedUserCAKeys /etc/other", "sshd's authorities", "/etc/other"),
        ("RevokedKeys /etc/other", "sshd's revocation list", "/etc/other"),
        ("AuthorizedPrincipalsFile none", "sshd's principals", "authorizedprincipalsfile"),
        ("PubkeyAuthentication no", "sshd's files", "disabled method"),
        ("AuthenticationMethods publickey", "second factor of people", "a key is enough"),
        ("CASignatureAlgorithms rsa-sha2-512", "Ed25519 certificates from elsewhere", "CASig"),
        ("Banner", "sshd's files", "Banner"),
    ],
)
async def test_node_check_finds_other_lines(
    node: NodeUnderTest, alice: str, line: str, check: str, words: str
) -> None:
    """A line of sshd's file that comes first, and undoes one of ours, is found and named."""
    config = (node.folder / "sshd_config").read_text()
    node.write("sshd_config", f"{line}\n{config}")
    try:
        found = await node.check("--account", alice)
        assert found["status"] == 1
        assert found[check]["state"] == "failed"
        assert words.lower() in found[check]["detail"].lower()
    finally:
        node.write("sshd_config", config)


async def test_node_force_command_of_sshd_would_undo_the_certificates(
    node: NodeUnderTest, alice: str
) -> None:
    """Why it is looked for: sshd's own ForceCommand replaces that of a certificate."""
    key = node.certify(node.principal(alice), options=("force-command=/bin/echo limited",))
    assert (await node.ssh(key, alice, BindAddress=GATEWAY)).stdout == b"limited\n"
    config = (node.folder / "sshd_config").read_text()
    node.write("sshd_config", f"ForceCommand /bin/echo all\n{config}")
    try:
        await node.restart()
        assert (await node.ssh(key, alice, BindAddress=GATEWAY)).stdout == b"all\n"
    finally:
        node.write("sshd_config", config)
        await node.restart()


async def test_node_check_finds_what_files_lack(node: NodeUnderTest, alice: str) -> None:
    """An old or missing list, an altered session program, an open file and a foreign principal."""
    await confirm(node, seconds_ago=7200)
    found = await node.check()
    assert "was confirmed 72" in found["age of the revocation list"]["detail"]
    (node.folder / "revoked_keys").rename(node.folder / "away")
    assert "not there" in (await node.check())["revocation list"]["detail"]
    (node.folder / "away").rename(node.folder / "revoked_keys")
    await confirm(node)
    altered = node.write("session", "#!/usr/bin/python3\nprint('HGS1')\n", mode=0o755)
    found = await node.check(session_program=str(altered))
    assert "no known release" in found["session program's release"]["detail"]
    found = await node.check("--account", alice, session_program=str(altered))
    assert found["session program runs"]["state"] == "failed"
    found = await node.check(session_program=str(node.write("session", "#!/bin/sh\n", mode=0o755)))
    assert found["session program's interpreter"]["state"] == "failed"
    (node.folder / "user_ca.pub").chmod(0o666)
    assert "others can write" in (await node.check())["authorities' file"]["detail"]
    (node.folder / "user_ca.pub").chmod(0o644)
    node.write("principals.d/root", f"{node.principal('root')}\n")
    found = await node.check()
    assert (found["principals files"]["detail"][-4:], found["status"]) == ("root", 1)
    (node.folder / "principals.d" / "root").unlink()
    assert (await node.check())["status"] == 0


async def test_node_check_finds_a_host_certificate_of_no_use(node: NodeUnderTest) -> None:
    """One of another key or name, expired, or no host's, is found; one that ends soon is told."""
    soon, wrong = "-1h:+5d", node.clients / "wrong"
    cases = {
        ("127.0.0.1", soon): ("host certificate's time", "warning"),
        ("login.example.org", "-1h:+30d"): ("host certificate's names", "failed"),
        ("127.0.0.1", "-2h:-1h"): ("host certificate's time", "failed"),
    }
    for (name, valid), (check, state) in cases.items():
        node.certify_host(name, valid=valid)
        assert (await node.check())[check]["state"] == state, (name, valid)
    other = new_key(wrong)
    keygen("-s", node.authority("host_ca"), "-h", "-I", "x", "-n", "127.0.0.1", f"{other}.pub")
    try:
        node.write("host_key-cert.pub", _bytes(f"{other}-cert.pub"))
        assert (await node.check())["host certificate's key"]["state"] == "failed"
    finally:
        node.certify_host("127.0.0.1")


def _bytes(path: str) -> bytes:
    return Path(path).read_bytes()


async def test_node_check_without_root_says_what_it_needs(
    node: NodeUnderTest, site: Site, alice: str
) -> None:
    """Without root what everybody can see is looked at, and the rest is named, not passed."""
    command = f"{site.addresses.venv}/bin/headgate-tokens"
    argv = (command, "node-setup", "--check", "--offline", "--node", f"{node.folder}/node.toml")
    done = await site.exec(argv, user=alice)
    assert done.status == 3, done
    assert b"run this as root" in done.stdout


async def test_node_check_compares_authorities_with_the_translators(
    node: NodeUnderTest, site: Site
) -> None:
    """A node that trusts a key which the translator does not name is told so."""
    done = await node.tokens(
        *("node-setup", "--check", "--json", "--node", node.folder / "node.toml"),
        *("--tokens", site.addresses.token_translator),
        *("--sshd-config", node.folder / "sshd_config"),
    )
    found = {item["check"]: item for item in json.loads(done.stdout)["findings"]}
    assert found["authorities are the site's"]["state"] == "failed"
    assert found["host certificate's authority"]["state"] == "failed"

"""A node set up by `node-setup --print`: each of its lines does what it says, on a real sshd."""

import base64
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp.test_utils import unused_port

from headgate.command import run
from testbed.site import Site
from tests.conftest import LocalUser
from tests.integration.node_under_test import NodeUnderTest, new_key

pytestmark = pytest.mark.site


@pytest.fixture(scope="module")
async def node(
    site: Site, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[NodeUnderTest]:
    """A node as printed, with a command for the principals and without a second factor."""
    clients = tmp_path_factory.mktemp("clients")
    one = NodeUnderTest.make(site, "plain", unused_port(), clients)
    await one.start()
    yield one
    await site.stop("node-plain")


@pytest.fixture(scope="module")
async def staff(site: Site) -> str:
    """An administrator's own account, outside of the importer's range."""
    argv = ("useradd", "--create-home", "--uid", "1500", "-p", "*", "adminanna")
    (await site.exec(argv)).checked()
    return "adminanna"


@pytest.fixture(scope="module")
async def alice(local_user: LocalUser) -> str:
    """Somebody of the range."""
    return await local_user()


@pytest.fixture(scope="module")
async def bob(local_user: LocalUser) -> str:
    """Somebody else of the range."""
    return await local_user()


async def test_nodes_matrix_the_right_principal(node: NodeUnderTest, alice: str, bob: str) -> None:
    """The principal of an account opens it, and no other."""
    key = node.certify(node.principal(alice))
    assert await node.opens(key, alice)
    for other in (bob, "root", "nobody", "slurm"):
        assert not await node.opens(key, other), other


async def test_nodes_matrix_no_principal(node: NodeUnderTest, alice: str) -> None:
    """A certificate without principals is no wildcard."""
    key = node.certify()
    for user in (alice, "root"):
        assert not await node.opens(key, user)


@pytest.mark.parametrize(
    "name",
    ["{user}", "hg:other:{user}", "hg::{user}", "{user}@{realm}", "*", "hg:{realm}@data:{user}"],
)
async def test_nodes_matrix_other_names(node: NodeUnderTest, alice: str, name: str) -> None:
    """Bare names, patterns, those of another realm and of other nodes open nothing."""
    principal = name.format(user=alice, realm=node.settings["realm"])
    assert not await node.opens(node.certify(principal), alice)


@pytest.mark.parametrize("user", ["root", "adminanna", "daemon", "slurm", "nobody"])
async def test_nodes_root_and_staff_stay_closed(node: NodeUnderTest, staff: str, user: str) -> None:
    """Whatever the true authority signs for root, staff or a service, it logs in nowhere."""
    realm = node.settings["realm"]
    names = (user, f"hg:{realm}:{user}", f"hg:{realm}:{staff}", f"hg:{realm}:root", "root", staff)
    key = node.certify(*names, options=("permit-pty",))
    for account in (user, staff, "root"):
        assert not await node.opens(key, account), account


async def test_nodes_matrix_time(node: NodeUnderTest, alice: str) -> None:
    """Expired certificates and those whose time has not come are refused."""
    name = node.principal(alice)
    for valid in ("-2h:-1m", "+1h:+2h"):
        assert not await node.opens(node.certify(name, valid=valid), alice), valid


async def test_nodes_matrix_source_address(node: NodeUnderTest, alice: str) -> None:
    """A certificate for another network is refused; one for this one works from it alone."""
    name = node.principal(alice)
    elsewhere = node.certify(name, options=("source-address=192.0.2.0/24",))
    assert not await node.opens(elsewhere, alice)
    here = node.certify(name, options=("source-address=127.0.0.1/32",))
    assert await node.opens(here, alice)
    assert not await node.opens(here, alice, BindAddress="127.0.0.2")


async def test_nodes_matrix_serials(node: NodeUnderTest, alice: str) -> None:
    """A serial of all 64 bits is like any other."""
    node.serial = 2**64 - 2
    try:
        assert await node.opens(node.certify(node.principal(alice)), alice)
    finally:
        node.serial = 5000


async def test_nodes_another_authority(node: NodeUnderTest, alice: str) -> None:
    """Any other key's certificates are refused, also the host authority's."""
    for by in ("other_ca", "host_ca"):
        assert not await node.opens(node.certify(node.principal(alice), by=by), alice)


async def test_nodes_rotation(node: NodeUnderTest, alice: str) -> None:
    """Two authorities in the file are both believed, one taken out no more; nothing is reloaded."""
    name = node.principal(alice)
    old, new = node.certify(name), node.certify(name, by="other_ca")
    node.write("user_ca.pub", node.public("user_ca") + node.public("other_ca"))
    assert (await node.opens(old, alice), await node.opens(new, alice)) == (True, True)
    node.write("user_ca.pub", node.public("other_ca"))
    assert (await node.opens(old, alice), await node.opens(new, alice)) == (False, True)
    node.write("user_ca.pub", node.public("user_ca"))


async def test_nodes_matrix_force_command(node: NodeUnderTest, alice: str) -> None:
    """What runs is the certificate's command; what was asked for is a variable."""
    command = 'force-command=echo "forced: $SSH_ORIGINAL_COMMAND"'
    key = node.certify(node.principal(alice), options=(command,))
    done = await node.ssh(key, alice, "id", "-un")
    assert (done.status, done.stdout) == (0, b"forced: id -un\n")
    assert (await node.ssh(key, alice)).stdout == b"forced: \n"


async def test_nodes_force_command_is_not_got_round(
    node: NodeUnderTest, alice: str, tmp_path: Path
) -> None:
    """No subsystem, terminal, forwarding, variable or second certificate gets round it."""
    options = ("force-command=/bin/echo forced",)
    key = node.certify(node.principal(alice), options=options)
    done = await node.ssh(key, alice, "-s", "sftp")
    assert b"forced" in done.stdout or done.status
    done = await node.ssh(key, "", "-b", "/dev/null", f"{alice}@127.0.0.1", program="sftp")
    assert done.status
    done = await node.ssh(key, alice, "-tt", "tty")
    assert b"pts" not in done.stdout
    for way in (("-W", f"127.0.0.1:{node.port}"), ("-N", "-R", f"{tmp_path}/b:127.0.0.1:1")):
        done = await node.ssh(key, alice, *way, ExitOnForwardFailure="yes")
        assert (done.status, done.stdout) == (255, b""), way
    done = await node.ssh(key, alice, "id", SetEnv="BASH_ENV=/tmp/x LD_PRELOAD=/tmp/x PATH=/tmp")
    assert done.stdout == b"forced\n"


@pytest.mark.parametrize("option", ["force-command=/bin/false", "source-address=192.0.2.0/24"])
async def test_nodes_options_cannot_be_removed(
    node: NodeUnderTest, alice: str, option: str
) -> None:
    """A certificate without its limit, everything else as it was signed, is no certificate."""
    key = node.certify(node.principal(alice), options=(option,))
    _operate(key)
    assert not await node.opens(key, alice)
    # The same surgery on one that had no options yields the certificate itself: it is sound.
    plain = node.certify(node.principal(alice))
    _operate(plain)
    assert await node.opens(plain, alice)


def _operate(key: Path) -> None:
    certificate = Path(f"{key}-cert.pub")
    kind, text, *_ = certificate.read_text().split()
    certificate.write_text(f"{kind} {_without_critical_options(text)}\n")


def _without_critical_options(text: str) -> str:
    """An Ed25519 certificate's base64 with its critical options emptied (PROTOCOL.certkeys)."""
    blob, at, fields = base64.b64decode(text), 0, []

    def take(size: int) -> bytes:
        nonlocal at
        at += size
        return blob[at - size : at]

    def string() -> bytes:
        head = take(4)
        return head + take(struct.unpack(">I", head)[0])

    fields += [string(), string(), string(), take(8), take(4), string(), string(), take(16)]
    string()
    return base64.b64encode(b"".join(fields) + bytes(4) + blob[at:]).decode()


async def test_nodes_krl_by_serial_id_key_and_authority(node: NodeUnderTest, alice: str) -> None:
    """What the list names is refused at the next login, and works again when it no longer does."""
    name = node.principal(alice)
    key, other = node.certify(name, key_id="v1;sub=a"), node.certify(name, key_id="v1;sub=b")
    public = key.with_suffix(".pub").read_text().strip()
    lines = {
        f"serial: {node.serial - 1}": True,
        f"serial: 1-{node.serial - 1}": True,
        "id: v1;sub=a": True,
        f"key: {public}": True,
        f"sha256: {public}": True,
        f"key: {node.public('user_ca').strip()}": False,
    }
    try:
        for line, others_work in lines.items():
            await node.revoke(line)
            assert not await node.opens(key, alice), line
            assert await node.opens(other, alice) is others_work, line
    finally:
        await node.revoke()
    assert await node.opens(key, alice)


@pytest.mark.parametrize("content", [None, b"", b"SSHKRL\n\0broken"])
async def test_nodes_krl_missing_fails_closed(
    node: NodeUnderTest, alice: str, content: bytes | None
) -> None:
    """Without a list, or with a broken one, nobody gets in; an empty file revokes nothing."""
    key = node.certify(node.principal(alice))
    assert await node.opens(key, alice)
    (node.folder / "revoked_keys").unlink()
    try:
        if content is not None:
            node.write("revoked_keys", content)
        assert await node.opens(key, alice) is (content == b"")
    finally:
        await node.revoke()
    assert await node.opens(key, alice)


@pytest.mark.parametrize(
    ("change", "mode"),
    [
        ("\nexit 1\n", 0o755),
        ("\nkill -KILL $$\n", 0o755),
        ("", 0o644),
        ("", 0o757),
        (None, 0),
    ],
    ids=["status", "killed", "not executable", "everybody's", "gone"],
)
async def test_nodes_principals_command_failure_denies(
    node: NodeUnderTest, alice: str, change: str | None, mode: int
) -> None:
    """A command that fails after it printed, cannot run, or is not root's alone, denies."""
    key, program = node.certify(node.principal(alice)), node.folder / "principals"
    sound = program.read_text()
    try:
        program.unlink()
        if change is not None:
            node.write("principals", sound + change, mode=mode)
        assert not await node.opens(key, alice)
    finally:
        node.write("principals", sound, mode=0o755)
    assert await node.opens(key, alice)


async def test_nodes_pam_refuses_an_expired_account(
    node: NodeUnderTest, site: Site, alice: str
) -> None:
    """`UsePAM yes`: an account that expired is refused in spite of a valid certificate."""
    key = node.certify(node.principal(alice))
    assert await node.opens(key, alice)
    (await site.exec(("chage", "-E", "0", alice))).checked()
    assert not await node.opens(key, alice)
    (await site.exec(("chage", "-E", "-1", alice))).checked()
    assert await node.opens(key, alice)


async def test_nodes_a_locked_password_keeps_nobody_out(
    node: NodeUnderTest, site: Site, alice: str
) -> None:
    """With PAM, `usermod -L` is no suspension: a certificate still opens the account."""
    key = node.certify(node.principal(alice))
    (await site.exec(("usermod", "-L", alice))).checked()
    try:
        assert await node.opens(key, alice)
    finally:
        (await site.exec(("usermod", "-p", "*", alice))).checked()


async def test_nodes_host_certificate(node: NodeUnderTest, alice: str) -> None:
    """A client that knows the host authority connects; one that knows another does not."""
    key = node.certify(node.principal(alice))
    assert await node.opens(key, alice)
    try:
        node.known_hosts(f"@cert-authority [127.0.0.1]:{node.port} {node.public('other_ca')}")
        done = await node.ssh(key, alice, "id")
    finally:
        node.known_hosts()
    assert (done.status, b"Host key verification failed" in done.stderr) == (255, True)


@pytest.mark.parametrize(
    ("names", "valid"),
    [(("login.example.org",), "-1h:+1h"), (("127.0.0.1",), "-2h:-1h"), (("127.0.0.1",), "+1h:+2h")],
    ids=["another name", "expired", "not yet"],
)
async def test_nodes_host_certificate_mismatch(
    node: NodeUnderTest, alice: str, names: tuple[str, ...], valid: str
) -> None:
    """A host certificate for another name, or out of its time, is refused by a stock client."""
    key = node.certify(node.principal(alice))
    try:
        node.certify_host(*names, valid=valid)
        await node.restart()
        done = await node.ssh(key, alice, "id")
        assert (done.status, done.stdout) == (255, b"")
        assert b"Host key verification failed" in done.stderr, done
    finally:
        node.certify_host("127.0.0.1")
        await node.restart()
    assert await node.opens(key, alice)


async def test_nodes_a_user_certificate_is_no_host(node: NodeUnderTest, alice: str) -> None:
    """A host certificate does not log in, even one of the user authority, naming the account."""
    key = new_key(node.clients / "host-as-user")
    keygen = ("ssh-keygen", "-q", "-s", str(node.authority("user_ca")), "-h", "-I", "x")

    names = ("-n", node.principal(alice), str(key.with_suffix(".pub")))
    (await run((*keygen, *names), timeout=20)).checked()
    assert not await node.opens(key, alice)

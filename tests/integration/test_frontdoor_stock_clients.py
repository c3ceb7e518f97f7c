"""The front door of a real site, visited with the ssh, scp, sftp and rsync of the distribution."""

import asyncio
import hashlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import msgspec
import pytest

from headgate.command import run
from testbed.site import Site
from testbed.waiting import until
from tests.integration.laptop import ASKPASS, SECONDS, Laptop, config, terminal

pytestmark = pytest.mark.site


@pytest.fixture(scope="module")
async def people(site: Site) -> Site:
    """The site, with its people's accounts."""
    await site.import_accounts()
    return site


@pytest.fixture
async def laptop(people: Site, tmp_path: Path) -> Laptop:
    """Alice's laptop, with a token of 4 000 characters."""
    site = people
    (tmp_path / "askpass").write_text(ASKPASS)
    (tmp_path / "askpass").chmod(0o700)
    (tmp_path / "config").write_text(config(tmp_path, site))
    one = Laptop(tmp_path, site)
    one.has(await token_of(site, "alice", 4000))
    return one


async def token_of(site: Site, user: str, length: int, audience: Sequence[str] = ()) -> str:
    """A token of at least that many characters, for the translator unless told otherwise."""
    claims = {"padding": "x" * (length * 3 // 4)}
    async with site.issuer() as control:
        for_whom = audience or (site.addresses.token_translator,)
        token = await control.token(user, audience=for_whom, claims=claims)
    assert len(token) >= length
    return token


async def test_command_with_a_long_token(laptop: Laptop):
    """A token of 4 000 characters, fed in parts, opens the door to a stock ssh."""
    done = await laptop.ssh("door", "id -un; cat; echo oops >&2; exit 7", stdin=b"input\n")
    assert done.stdout == b"alice\ninput\n"
    assert done.stderr.endswith(b"oops\n")
    assert done.status == 7


async def test_token_for_the_front_door_itself(laptop: Laptop):
    """The front door's own audience is as good as the translator's, and the token may be short."""
    audience = (str(laptop.site.addresses.frontdoor["audience"]),)
    laptop.has(await token_of(laptop.site, "alice", 100, audience))
    assert (await laptop.ssh("door", "true")).status == 0


async def test_token_for_another_service_is_refused(laptop: Laptop):
    """A token that is meant for the gateway alone opens nothing here."""
    audience = (laptop.site.addresses.gateway,)
    laptop.has(await token_of(laptop.site, "alice", 100, audience))
    done = await laptop.ssh("door", "true")
    assert done.status == 255
    assert b"meant for another service; ask for the audience ssh://" in done.stderr
    assert b"Permission denied (keyboard-interactive)" in done.stderr


async def test_nobody_gets_in_without_an_account(laptop: Laptop):
    """A valid token of somebody without an account leads to the words of the registry."""
    laptop.has(await token_of(laptop.site, "dave", 100))
    done = await laptop.ssh("door", "true")
    assert done.status == 255
    assert b"headgate: " in done.stderr
    assert b"administrator" in done.stderr


async def test_another_accounts_name(laptop: Laptop):
    """Whoever asks for another's account is told their own."""
    done = await laptop.ssh("-l", "root", "door", "id")
    assert (done.status, done.stdout) == (255, b"")
    assert b"You are alice here" in done.stderr
    assert (await laptop.ssh("-l", "alice", "door", "id -un")).stdout == b"alice\n"


async def test_terminal_and_window(laptop: Laptop):
    """A terminal has the size of the person's window, and follows it."""
    async with terminal(laptop, "stty size; read wait; stty size; tty; exit 3") as window:
        assert await window.line() == "24 80"
        window.resize(43, 132)
        # The change and the line go the same way, in order.
        window.write("go\n")
        assert await window.line() == "go"
        assert await window.line() == "43 132"
        assert (await window.line()).startswith("/dev/pts/")
        assert await window.status() == 3


async def test_files_go_both_ways(laptop: Laptop):
    """20 MB through ssh, scp and sftp come back as they went."""
    await there_and_back(laptop, 20)


@pytest.mark.long
async def test_large_files_go_both_ways(laptop: Laptop):
    """200 MB likewise."""
    await there_and_back(laptop, 200)


async def there_and_back(laptop: Laptop, megabytes: int) -> None:
    """Send a file by scp, fetch it by sftp, and have the login node say what arrived."""
    source, back = laptop.folder / "source", laptop.folder / "back"
    source.write_bytes(os.urandom(1_000_000) * megabytes)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    (await laptop.copy("scp", str(source), "door:sent")).checked()
    said = (await laptop.ssh("door", "sha256sum < sent")).stdout.decode()
    assert said.split()[0] == digest
    (await laptop.copy("sftp", "door:sent", str(back))).checked()
    assert hashlib.sha256(back.read_bytes()).hexdigest() == digest
    streamed = await laptop.ssh("door", "tee piped", stdin=source.read_bytes())
    assert hashlib.sha256(streamed.stdout).hexdigest() == digest
    (await laptop.ssh("door", "cmp sent piped && rm sent piped")).checked()


async def test_rsync_and_old_scp(laptop: Laptop):
    """What runs a command at the other end runs it through the front door, too."""
    source, back = laptop.folder / "tree", laptop.folder / "back"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "file").write_text("content")
    shell = " ".join(laptop.argv())
    for arguments in (("-r", f"{source}/", "door:tree"), ("-r", "door:tree/", str(back))):
        argv = ("rsync", "-e", shell, *arguments)
        (await run(argv, timeout=SECONDS, env=laptop.environment)).checked()
    assert (back / "deep" / "file").read_text() == "content"
    (await laptop.copy("scp", "-O", "door:tree/deep/file", str(back / "other"))).checked()
    assert (back / "other").read_text() == "content"


async def test_jump_with_ones_own_certificate(laptop: Laptop):
    """`ssh -J` goes through to the login node, where the person's own certificate counts."""
    await certify(laptop)
    done = await laptop.ssh("-J", "door", "node", "id -un; exit 5")
    assert (done.stdout, done.status) == (b"alice\n", 5)


async def certify(laptop: Laptop) -> None:
    """Get a certificate for a key of the laptop, as `headgate` does."""
    key = laptop.folder / "id"
    argv = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
    (await run(argv, timeout=SECONDS)).checked()
    token = (laptop.folder / "token").read_text().strip()
    body = {"public_key": key.with_suffix(".pub").read_text()}
    url = f"{laptop.site.addresses.token_translator}/v1/certificates"
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(raise_for_status=True) as session,
        session.post(url, json=body, headers=headers) as response,
    ):
        certificate = (await response.json())["certificate"]
    (laptop.folder / "id-cert.pub").write_text(certificate)


@pytest.mark.parametrize(
    "target", ["127.0.0.1:{sshd}", "login:22", "169.254.169.254:80", "localhost:{tokens}"]
)
async def test_other_targets_are_refused(laptop: Laptop, target: str):
    """A jump to the loopback, to cloud metadata or to another port is refused."""
    done = await laptop.ssh("-W", target.format(**laptop.site.addresses.ports), "door")
    assert done.status == 255
    assert b"administratively prohibited" in done.stderr


async def test_remote_forwarding_is_refused(laptop: Laptop):
    """`ssh -R` gets no port here."""
    refused = await laptop.ssh("-o", "ExitOnForwardFailure=yes", "-R", "0:login:22", "door", "id")
    assert refused.status == 255
    assert b"remote port forwarding failed" in refused.stderr


async def test_agent_display_and_environment_stay_at_home(laptop: Laptop):
    """Neither agent nor display nor variables that programs obey reach the login node."""
    agent = laptop.folder / "agent"
    process = await asyncio.create_subprocess_exec("ssh-agent", "-D", "-a", str(agent), stdout=-3)
    try:
        await until(agent.exists, seconds=SECONDS)
        done = await laptop.ssh(
            *("-A", "-o", f"IdentityAgent={agent}"),
            *("-o", "SetEnv=LD_PRELOAD=/srv/evil.so LC_TIME=de_DE BASH_ENV=/srv/evil"),
            *("door", 'echo "${SSH_AUTH_SOCK-} ${DISPLAY-} ${LD_PRELOAD-} ${BASH_ENV-} $LC_TIME"'),
        )
    finally:
        process.terminate()
        await process.wait()
    assert done.stdout == b"    de_DE\n"


async def test_other_subsystems_are_refused(laptop: Laptop):
    """Of subsystems there is sftp; the word about others reaches the person."""
    done = await laptop.ssh("-s", "door", "netconf")
    assert done.status == 255
    assert b"only sftp" in done.stderr


async def test_one_connection_for_many_sessions(laptop: Laptop):
    """A kept connection (ControlMaster) is asked for the token once, however idle it begins."""
    path = laptop.folder / "control"
    control = ("-o", f"ControlPath={path}")
    (await laptop.ssh(*control, "-MNf", "door")).checked()
    laptop.has("used up")
    try:
        said = await asyncio.gather(*(laptop.ssh(*control, "door", f"echo {n}") for n in range(3)))
        assert [each.stdout for each in said] == [b"0\n", b"1\n", b"2\n"]
    finally:
        (await laptop.ssh(*control, "-O", "exit", "door")).checked()


async def test_killed_front_door_leaves_no_connection_behind(laptop: Laptop):
    """When the front door is killed, the login node's side of every session ends."""
    async with terminal(laptop, "echo here; sleep 1000") as window:
        assert await window.line() == "here"
        assert await processes_of(laptop.site, "alice")
        await laptop.site.signal("frontdoor", signal.SIGKILL)
        try:
            async with asyncio.timeout(5):
                while await processes_of(laptop.site, "alice"):
                    pass
        finally:
            await laptop.site.start("frontdoor")
        assert await window.status() == 255
    assert (await laptop.ssh("door", "true")).status == 0


async def processes_of(site: Site, user: str) -> bytes:
    """That user's processes of a login: sshd's own and the command."""
    return (await site.exec(("pgrep", "-a", "-u", user, "sshd|sleep"))).stdout


async def test_suspended_person_is_put_out_and_stays_out(laptop: Laptop):
    """A suspension ends the session within two seconds; a resume lets the person in again."""
    site = laptop.site
    async with site.issuer() as control:
        (sub,) = [user["sub"] for user in await control.users() if user["username"] == "alice"]
    async with terminal(laptop, "echo here; sleep 1000") as window:
        assert await window.line() == "here"
        whom = ("--iss", site.addresses.issuer, "--sub", sub)
        await tokens(site, "suspend", *whom, "--reason", "stolen laptop")
        try:
            async with asyncio.timeout(2):
                await window.status()
                while await processes_of(site, "alice"):
                    pass
            done = await laptop.ssh("-o", "NumberOfPasswordPrompts=2", "door", "true")
            assert done.status == 255
            assert b"stolen laptop" in done.stderr
        finally:
            held = msgspec.json.decode(await tokens(site, "holds", "--json"))
            for hold in held if isinstance(held, list) else held["holds"]:
                await tokens(site, "resume", hold["id"])
    await until_let_in(laptop)


async def until_let_in(laptop: Laptop) -> None:
    """Return when the front door has heard that the hold is lifted."""
    async with asyncio.timeout(SECONDS):
        while (await laptop.ssh("door", "true")).status:
            pass


async def tokens(site: Site, verb: str, *arguments: str) -> bytes:
    """What `headgate-tokens` prints on the translator's host."""
    command = f"{site.addresses.venv}/bin/headgate-tokens"
    config = ("--config", str(site.path("conf", "headgate-tokens.toml")))
    done = await site.exec((command, verb, *config, *arguments), user="headgate-tokens")
    return done.checked().stdout


async def test_nothing_secret_is_left_behind(laptop: Laptop):
    """No part of a token is in the front door's log, nor in its state."""
    token = (laptop.folder / "token").read_text().strip()
    assert (await laptop.ssh("door", "true")).status == 0
    log = laptop.site.path("log", "frontdoor.log").read_text()
    assert '"login"' in log
    kept = list(laptop.site.path("var", "headgate-frontdoor").iterdir())
    said = log.encode() + b"".join(path.read_bytes() for path in kept)
    signature = token.rpartition(".")[2]
    for piece in (token[:100], token[1000:1100], signature[:40]):
        assert piece.encode() not in said
    for path in (*kept, laptop.site.path("conf", "headgate-frontdoor.host_key")):
        assert path.stat().st_mode & 0o077 == 0

"""Logging in, staying logged in, and saying who one is; with a real issuer."""

import asyncio
import stat
from pathlib import Path

import aiohttp
import msgspec
import pytest

from testbed.issuer.core import Issuer
from tests.service.cli.command_line import CommandLine
from tests.service.client.fake_gateway import FakeGateway

HOSTS = ("login.example.org", "tokens.example.org")


class Anything(set[str]):
    """A set of tokens that holds whatever one asks for, and remembers it."""

    def __contains__(self, token: object) -> bool:
        self.add(str(token))
        return True


@pytest.fixture
def headgate(tmp_path: Path, gateway: FakeGateway, issuer: Issuer) -> CommandLine:
    """The command of somebody who has no token; the gateway trusts the issuer."""
    gateway.issuers = [
        {
            "issuer": issuer.url,
            "client_id": "headgate-cli",
            "scopes": ["openid", "profile", "offline_access"],
            "audiences": [gateway.url, "https://tokens.example.org"],
        }
    ]
    gateway.tokens = Anything()
    return CommandLine(tmp_path)


def accepting() -> list[str]:
    """The hosts that the person lets the site speak for."""
    return [word for host in HOSTS for word in ("--accept", host)]


async def approve(issuer: Issuer, code: str, decision: str = "approve") -> None:
    """What the person does in the browser."""
    form = {"user_code": code, "username": "alice", "decision": decision}
    async with (
        aiohttp.ClientSession() as session,
        session.post(issuer.url + "device", data=form) as answer,
    ):
        assert answer.status == 200


async def log_in(
    headgate: CommandLine, gateway: FakeGateway, issuer: Issuer, decision: str = "approve"
) -> tuple[int, list[bytes], bytes]:
    """A whole login; exit status, lines of standard output, standard error."""
    process = await headgate.start("login", gateway.url, *accepting(), "--json")
    assert process.stdout is not None
    async with asyncio.timeout(30):
        first = await process.stdout.readline()
        await approve(issuer, msgspec.json.decode(first)["user_code"], decision)
        rest, said = await process.communicate()
    assert process.returncode is not None
    return process.returncode, [first, *rest.splitlines()], said


def login_file(headgate: CommandLine) -> Path:
    """Where the one login is kept."""
    (path,) = (headgate.home / ".local/state/headgate/logins").glob("*.json")
    return path


async def test_login_keeps_a_token_for_all_audiences(
    headgate: CommandLine, gateway: FakeGateway, issuer: Issuer
):
    """The device flow ends in a private file, with a token that every service of the site takes."""
    status, lines, said = await log_in(headgate, gateway, issuer)
    assert (status, said) == (0, b"")
    assert msgspec.json.decode(lines[1])["me"]["account"] == "alice"
    path = login_file(headgate)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    token = msgspec.json.decode(path.read_bytes())["access_token"]
    issued = issuer.tokens.find(token)
    assert issued is not None
    assert issued.grant.audience == (gateway.url, "https://tokens.example.org")
    assert token in gateway.tokens


async def test_later_commands_know_the_site(
    headgate: CommandLine, gateway: FakeGateway, issuer: Issuer
):
    """After a login no address and no token has to be given."""
    await log_in(headgate, gateway, issuer)
    assert (await headgate.json("whoami"))["sub"] == "alice-1"
    done = (await headgate("job", "submit", "--", "true")).checked()
    assert done.stdout.decode().strip() in gateway.jobs


async def test_a_login_shows_page_and_code(
    headgate: CommandLine, gateway: FakeGateway, issuer: Issuer
):
    """A person reads a page and a code, then a welcome."""
    process = await headgate.start("login", gateway.url, *accepting())
    assert process.stderr is not None
    async with asyncio.timeout(30):
        lines = [(await process.stderr.readline()).decode() for _ in range(3)]
        await approve(issuer, lines[2].split()[-1])
        _, rest = await process.communicate()
    assert issuer.url + "device?user_code=" in lines[1]
    assert "Logged in" in rest.decode()
    assert process.returncode == 0


async def test_a_denied_login_keeps_nothing(
    headgate: CommandLine, gateway: FakeGateway, issuer: Issuer
):
    """Denial is a sentence; no site and no token is remembered."""
    status, _, said = await log_in(headgate, gateway, issuer, "deny")
    assert status == 1
    assert msgspec.json.decode(said)["code"] == "issuer_access_denied"
    assert not (headgate.home / ".config").exists()
    assert not (headgate.home / ".local").exists()


async def test_a_refused_token_is_renewed(
    headgate: CommandLine, gateway: FakeGateway, issuer: Issuer
):
    """A 401 makes the command refresh, keep the new token, and go on."""
    await log_in(headgate, gateway, issuer)
    before = msgspec.json.decode(login_file(headgate).read_bytes())
    gateway.faults = [("GET", "denied")]
    (await headgate("whoami")).checked()
    after = msgspec.json.decode(login_file(headgate).read_bytes())
    assert after["access_token"] != before["access_token"]
    assert after["refresh_token"] == before["refresh_token"]


async def test_an_old_token_is_renewed_before_use(
    headgate: CommandLine, gateway: FakeGateway, issuer: Issuer
):
    """A token that is about to end is not sent at all."""
    await log_in(headgate, gateway, issuer)
    path = login_file(headgate)
    login = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode({**login, "expires_at": "2020-01-01T00:00:00Z"}))
    gateway.tokens.clear()
    (await headgate("whoami")).checked()
    assert login["access_token"] not in set(gateway.tokens)


async def test_an_ended_login_says_how_to_go_on(
    headgate: CommandLine, gateway: FakeGateway, issuer: Issuer
):
    """When the issuer ends the refresh token, the command names the next step."""
    await log_in(headgate, gateway, issuer)
    issuer.refresh.clear()
    gateway.faults = [("GET", "denied")]
    done = await headgate("whoami")
    assert done.status == 1
    assert f"headgate login {gateway.url}" in done.stderr.decode()


async def test_two_commands_share_one_refresh(
    headgate: CommandLine, gateway: FakeGateway, issuer: Issuer
):
    """Commands at the same time renew an old login once."""
    await log_in(headgate, gateway, issuer)
    path = login_file(headgate)
    login = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode({**login, "expires_at": "2020-01-01T00:00:00Z"}))
    gateway.tokens.clear()
    for done in await asyncio.gather(headgate("whoami"), headgate("whoami")):
        done.checked()
    assert len(gateway.tokens) == 1


async def test_logout_ends_the_login_here_and_there(
    headgate: CommandLine, gateway: FakeGateway, issuer: Issuer
):
    """The file is gone, the refresh token is revoked, and the next command says what to do."""
    await log_in(headgate, gateway, issuer)
    token = msgspec.json.decode(login_file(headgate).read_bytes())["refresh_token"]
    assert token in issuer.refresh
    result = await headgate.json("logout")
    assert result == {"site": gateway.url, "was_logged_in": True, "revoked": True}
    assert token not in issuer.refresh
    done = await headgate("whoami")
    assert "not logged in" in done.stderr.decode()


async def test_an_open_login_file_is_refused(
    headgate: CommandLine, gateway: FakeGateway, issuer: Issuer
):
    """A login that others could read is not used, and the way to mend it is named."""
    await log_in(headgate, gateway, issuer)
    login_file(headgate).chmod(0o644)
    done = await headgate("whoami")
    assert done.status == 1
    assert "chmod 600" in done.stderr.decode()


@pytest.mark.parametrize(
    "variable", ["ACCESS_TOKEN", "OIDC_ACCESS_TOKEN", "BEARER_TOKEN", "HEADGATE_TOKEN"]
)
async def test_tokens_of_other_tools_are_taken(
    headgate: CommandLine, gateway: FakeGateway, variable: str
):
    """What oidc-agent, oinit and WLCG tools export is used, and named when it is refused."""
    gateway.tokens = {"exported"}
    site = ("--site", gateway.url)
    (await headgate("whoami", *site, **{variable: "exported"})).checked()
    refused = await headgate("whoami", *site, **{variable: "other"})
    assert refused.status == 1
    assert f"${variable}" in refused.stderr.decode()
    assert "other" not in refused.stderr.decode().replace("another", "")


async def test_a_token_file_is_taken(headgate: CommandLine, gateway: FakeGateway, tmp_path: Path):
    """--token-file wins over the environment."""
    gateway.tokens = {"from-file"}
    path = tmp_path / "token"
    path.write_text("from-file\n")
    done = await headgate(
        *("whoami", "--site", gateway.url, "--token-file", str(path)), HEADGATE_TOKEN="x"
    )
    done.checked()


async def test_passwords_of_netrc_stay_out(headgate: CommandLine, gateway: FakeGateway):
    """A .netrc that knows every host neither breaks a command nor reaches the gateway."""
    gateway.tokens = {"t"}
    (headgate.home / ".netrc").write_text("default login me password secret\n")
    (await headgate("whoami", "--site", gateway.url, HEADGATE_TOKEN="t")).checked()
    assert gateway.requests("GET")[0]["Authorization"] == "Bearer t"


async def test_whoami_without_an_account(headgate: CommandLine, gateway: FakeGateway):
    """A pending account says since when and whom it waits for, an unknown one how to ask."""
    gateway.tokens = {"t"}
    headgate.environ = {"HEADGATE_SITE": gateway.url, "HEADGATE_TOKEN": "t"}
    who = {"iss": "https://iam/", "sub": "bob-1", "groups": []}
    gateway.me = {
        **who,
        "state": "pending",
        "requested_at": "2020-01-02T10:00:00Z",
        "waiting_for": "approval by the site's administrators",
    }
    pending = await headgate("whoami")
    words = (pending.checked().stdout + pending.stderr).decode()
    assert "requested 2020-01-02" in words
    assert "It waits for: approval by the site's administrators" in words
    gateway.me = {**who, "state": "unknown", "how_to_ask": "Write to hpc@example.org."}
    unknown = await headgate("whoami")
    assert "Write to hpc@example.org." in (unknown.stdout + unknown.stderr).decode()


async def test_no_site_is_a_sentence(headgate: CommandLine):
    """The very first command of a newcomer says what to do."""
    done = await headgate("whoami")
    assert done.status == 1
    assert "headgate login" in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


async def test_nobody_at_the_address(headgate: CommandLine, unused_port: int):
    """A wrong address is named within seconds."""
    done = await headgate("login", f"http://127.0.0.1:{unused_port}")
    assert done.status == 1
    assert "the connection was refused" in done.stderr.decode()


async def test_no_token_in_the_clear(headgate: CommandLine):
    """Plain HTTP to another machine is refused before anything is sent."""
    done = await headgate("whoami", "--site", "http://192.0.2.1", HEADGATE_TOKEN="t")
    assert done.status == 1
    assert "not HTTPS" in done.stderr.decode()


@pytest.fixture
async def unused_port() -> int:
    """A port on which nobody listens any more."""
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return port

"""The contract of PAM modules and wrappers: what a token, or a one-time password, opens."""

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from headgate.clock import HeldClock
from headgate.identity import Identity
from tests.service.token_translator.conftest import Issuer, Site, Start
from token_translator.account_requests import AccountRequests
from token_translator.database import open_async_database
from token_translator.one_time_passwords import SHAPE, Login, OneTimePasswords

PAM = """
[pam]
realm = "site1"
nodes = [
  { name = "login1.site.example", addresses = ["127.0.0.1", "::1"] },
  { name = "login2.site.example", addresses = ["192.0.2.2/32"] },
]
"""
HERE = {"host": "login1.site.example"}


@pytest.fixture
async def pam(start: Start) -> AsyncIterator[Site]:
    """A translator with the contract on; we are login1."""
    async with start(PAM) as site:
        yield site


async def get(site: Site, path: str, token: str = "", **query: str) -> tuple[int, Any]:
    """A GET with a bearer."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with site.client.get(path, params=query, headers=headers) as answer:
        return answer.status, await answer.json()


async def post(site: Site, path: str, token: str, body: object = None) -> tuple[int, Any]:
    """A POST with a bearer."""
    async with await site.post(path, {} if body is None else body, token=token) as answer:
        return answer.status, await answer.json()


async def password(site: Site, sub: str = "alice", **body: str) -> str:
    """A one-time password of somebody's."""
    status, document = await post(
        site, "/user/generate_otp", site.issuer.token(sub), {**HERE, **body}
    )
    assert status == 201, document
    made: str = document["one_time_password"]
    return made


async def test_pam_is_off_unless_configured(site: Site) -> None:
    """Without its section none of the paths is there."""
    for path in ("/info", "/info/op", "/verify_user", "/user/get_status", "/user/deploy"):
        assert (await get(site, path, site.issuer.token()))[0] == 404
    assert (await post(site, "/user/generate_otp", site.issuer.token()))[0] == 404


async def test_pam_information_is_what_wrappers_look_for(pam: Site) -> None:
    """The service, its issuers and what their tokens have to be are told to anybody."""
    status, document = await get(pam, "/info")
    assert (status, document["supported OPs"], document["supported_OPs"]) == (
        200,
        [pam.issuer.url],
        [pam.issuer.url],
    )
    assert document["login_info"]["ssh_host"] == "login1.site.example"
    status, document = await get(pam, "/info/op", url=pam.issuer.url)
    assert (status, document["audience"]) == (200, "https://tokens.site.example/")
    assert (await get(pam, "/info/op", url="https://elsewhere.example/"))[0] == 404
    found = await get(pam, "/")
    assert found[1]["description"].startswith("This is the user API for mapping remote")


async def test_pam_token_opens_its_own_account(pam: Site) -> None:
    """A token verifies for the account of its holder, and for no other name."""
    token = pam.issuer.token()
    assert await get(pam, "/verify_user", token, username="alice") == (
        200,
        {"state": "deployed", "verified": True},
    )
    for other in ("bob", "root", "Alice", "alice ", "alice\x00"):
        status, document = await get(pam, "/verify_user", token, username=other)
        assert (status, document["verified"]) == (200, False), other


@pytest.mark.parametrize("claims", [{"aud": "https://other.example/"}, {"aud": None}, {"exp": 1}])
async def test_pam_token_must_be_for_us(pam: Site, claims: dict[str, Any]) -> None:
    """A token for another service, for nobody, or of yesterday verifies nobody."""
    token = pam.issuer.token(**claims)
    assert (await get(pam, "/verify_user", token, username="alice"))[0] == 401


@pytest.mark.parametrize("name", ["token", "access_token", "Access_Token", "otp", "password"])
async def test_pam_token_in_the_address_is_refused(pam: Site, name: str) -> None:
    """Addresses end up in logs: a credential there is refused, even beside a good header."""
    for path in ("/verify_user", "/user/get_status", "/info"):
        query = {"username": "alice", name: pam.issuer.token()}
        headers = {"Authorization": f"Bearer {pam.issuer.token()}"}
        async with pam.client.get(path, params=query, headers=headers) as answer:
            document = await answer.json()
        assert (answer.status, document["code"]) == (400, "token_in_url"), path


async def test_pam_unknown_parameters_are_refused(pam: Site) -> None:
    """What the contract does not have is a mistake, and says so."""
    status, document = await get(pam, "/verify_user", pam.issuer.token(), username="a", user="b")
    assert (status, document["code"]) == (400, "unknown_parameter")
    assert (await get(pam, "/verify_user", pam.issuer.token()))[0] == 400


async def test_pam_status_says_how_somebody_stands(pam: Site) -> None:
    """With an account, waiting for one, without, blocked: in the contract's words."""
    pam.registry.refuses("waiting", "account_pending", waiting_for="Ann decides on Monday.")
    pam.registry.has("gone", "gone", state="blocked")
    states = {
        "alice": ("deployed", "username alice"),
        "waiting": ("pending", "Ann decides on Monday."),
        "nobody": ("not_deployed", "No account yet."),
        "gone": ("suspended", "username gone"),
    }
    for sub, (state, message) in states.items():
        status, document = await get(pam, "/user/get_status", pam.issuer.token(sub))
        assert (status, document) == (200, {"state": state, "message": message}), sub


async def test_pam_one_time_password_opens_once(pam: Site) -> None:
    """26 letters of base32 that let their owner in once, in any case of letters."""
    made = await password(pam)
    assert SHAPE.fullmatch(made)
    assert await get(pam, "/verify_user", made.lower(), username="alice") == (
        200,
        {"state": "deployed", "verified": True},
    )
    assert (await get(pam, "/verify_user", made, username="alice"))[0] == 401


async def test_pam_one_time_passwords_differ(pam: Site) -> None:
    """Two for the same token have nothing in common with it or each other."""
    token = pam.issuer.token()
    made = set()
    for _ in range(5):
        made.add((await post(pam, "/user/generate_otp", token, HERE))[1]["one_time_password"])
    assert len(made) == 5


@pytest.mark.parametrize("username", ["bob", "root", "Alice"])
async def test_pam_one_time_password_is_bound_to_the_user(pam: Site, username: str) -> None:
    """Shown for somebody else it opens nothing, and is used up by that."""
    pam.registry.has("bob", "bob")
    made = await password(pam)
    assert (await get(pam, "/verify_user", made, username=username))[0] == 401
    assert (await get(pam, "/verify_user", made, username="alice"))[0] == 401


async def test_pam_one_time_password_is_bound_to_the_host(pam: Site) -> None:
    """One for login2 is of no use to login1, who saw it; and login2 does not get it either."""
    made = await password(pam, host="login2.site.example")
    assert (await get(pam, "/verify_user", made, username="alice"))[0] == 401
    assert (await get(pam, "/verify_user", made, username="alice"))[0] == 401
    status, document = await post(pam, "/user/generate_otp", pam.issuer.token(), {"host": "other"})
    assert (status, document["code"]) == (403, "host_unknown")
    assert (await post(pam, "/user/generate_otp", pam.issuer.token()))[1]["code"] == "host_unknown"


async def test_pam_one_time_passwords_are_for_known_nodes(start: Start) -> None:
    """From an address that is no node's, nothing is tried at all."""
    elsewhere = PAM.replace('"127.0.0.1", "::1"', '"192.0.2.1"')
    async with start(elsewhere) as site:
        made = await password(site)
        status, document = await get(site, "/verify_user", made, username="alice")
        assert (status, document["code"]) == (403, "node_unknown")


async def test_pam_one_time_password_is_won_by_one(pam: Site) -> None:
    """Twenty at once with the same password: one gets in."""
    made = await password(pam)
    tries = [get(pam, "/verify_user", made, username="alice") for _ in range(20)]
    statuses = sorted(status for status, _ in await asyncio.gather(*tries))
    assert statuses == [200] + [401] * 19


async def test_pam_one_time_password_of_the_denied(pam: Site) -> None:
    """Who was blocked since does not get in with what they had."""
    made = await password(pam)
    pam.registry.has("alice", "alice", state="blocked")
    status, document = await get(pam, "/verify_user", made, username="alice")
    assert (status, document["code"]) == (403, "account_blocked")
    pam.registry.has("alice", "alicia")
    status, document = await get(pam, "/verify_user", pam.issuer.token(), username="alice")
    assert document["verified"] is False


async def test_pam_one_time_passwords_are_stored_hashed(
    pam: Site, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The database and the log hold no password and no token, whatever became of them."""
    token = pam.issuer.token()
    kept = await password(pam)
    used = await password(pam)
    await get(pam, "/verify_user", used, username="alice")
    await get(pam, "/verify_user", used, username="bob")
    stored = await asyncio.to_thread(files_of, folder)
    said = "".join(capfd.readouterr())
    for secret in (kept, used, token):
        assert secret.encode() not in stored
        assert secret not in said


def files_of(folder: Path) -> bytes:
    """All that is in the files of the database."""
    return b"".join(path.read_bytes() for path in sorted(folder.glob("tokens.sqlite*")))


async def test_pam_one_time_passwords_have_a_pace(pam: Site) -> None:
    """More than ten in a minute are refused, for each person."""
    for _ in range(10):
        await password(pam)
    status, document = await post(pam, "/user/generate_otp", pam.issuer.token(), HERE)
    assert (status, document["code"]) == (429, "too_many_requests")
    pam.registry.has("bob", "bob")
    await password(pam, "bob")


@pytest.fixture
async def engine(folder: Path) -> AsyncIterator[AsyncEngine]:
    """The translator's database."""
    one = open_async_database(f"sqlite+aiosqlite:///{folder}/tokens.sqlite")
    yield one
    await one.dispose()


async def test_pam_one_time_passwords_end_after_a_minute(engine: AsyncEngine) -> None:
    """At 59 s a password opens, at 60 s it does not, and then it is gone from the database."""
    passwords, clock = OneTimePasswords(engine), HeldClock()
    login = Login(Identity("https://i/", "alice"), "site1", "alice", "login1")
    made = [(await passwords.make(login, clock.now()))[0] for _ in range(2)]
    clock.advance(59)
    found = await passwords.use(made[0], account="alice", host="login1", now=clock.now())
    assert found == login
    clock.advance(1)
    assert await passwords.use(made[1], account="alice", host="login1", now=clock.now()) is None
    _, ends = await passwords.make(login, clock.now())
    assert ends - clock.now() == timedelta(seconds=60)


async def test_pam_requests_for_an_account_are_forgotten(engine: AsyncEngine) -> None:
    """Who asked and never again is gone after the time that the settings say."""
    requests, clock = AccountRequests(engine, kept=timedelta(days=90)), HeldClock()
    first, second = Identity("https://i/", "first"), Identity("https://i/", "second")
    began = await requests.add(first, "site1", clock.now())
    clock.advance(89 * 86400)
    assert await requests.add(first, "site1", clock.now()) == began
    await requests.add(second, "site1", clock.now())
    assert [found.identity for found in await requests.all()] == [first, second]
    clock.advance(91 * 86400)
    await requests.add(second, "site1", clock.now())
    assert [found.identity for found in await requests.all()] == [second]


RULES = """
[[rules]]
name = "files"
profiles = ["person"]
groups = ["files"]
command = "sftp"
[[rules]]
name = "data nodes"
profiles = ["person"]
groups = ["data"]
hosts = ["data"]
[[rules]]
name = "inside"
groups = ["inside"]
source_addresses = ["192.0.2.0/24"]
[[rules]]
name = "on hardware keys"
groups = ["careful"]
key_types = ["ssh-ed25519"]
[[rules]]
name = "members"
groups = ["hpc"]
[[clients]]
issuer = "ISSUER"
client_id = "orchestrator"
profiles = ["session"]
"""


async def test_pam_gives_no_more_than_the_rules(start: Start, issuer: Issuer) -> None:
    """Who would get a limited certificate, or none, does not get in by PAM instead."""
    async with start(PAM + RULES.replace("ISSUER", issuer.url)) as site:
        for claims, code in (
            ({"groups": ["files"]}, "certificate_needed"),
            ({"groups": ["data"]}, "certificate_needed"),
            ({"groups": ["inside"]}, "certificate_needed"),
            ({"groups": ["careful"]}, "certificate_needed"),
            ({"groups": ["other"]}, "no_rule"),
            ({"groups": ["hpc"], "client_id": "orchestrator"}, "client_ceiling"),
        ):
            token = site.issuer.token(**claims)
            status, document = await get(site, "/verify_user", token, username="alice")
            assert (status, document["code"]) == (403, code), claims
            status, document = await post(site, "/user/generate_otp", token, HERE)
            assert (status, document["code"]) == (403, code), claims
        token = site.issuer.token(groups=["hpc"])
        assert (await get(site, "/verify_user", token, username="alice"))[1]["verified"]


async def test_pam_deploy_gives_what_is_there(pam: Site) -> None:
    """For somebody with an account both forms say where to log in, and write nothing down."""
    token = pam.issuer.token()
    for status, document in (
        await get(pam, "/user/deploy", token),
        await post(pam, "/user/deploy", token),
    ):
        assert status == 200
        assert document["credentials"]["ssh_user"] == "alice"
        assert document["credentials"]["commandline"] == "ssh alice@login1.site.example"


async def test_pam_deploy_writes_a_request_down(pam: Site, folder: Path) -> None:
    """Who has no account has asked for one: one row, however often, and no account is made."""
    token = pam.issuer.token("newcomer")
    asked = pam.registry.asked
    for _ in range(3):
        status, document = await get(pam, "/user/deploy", token)
        assert (status, document["state"], "credentials" in document) == (202, "pending", False)
    assert (await post(pam, "/user/deploy", token))[0] == 202
    assert pam.registry.asked == asked + 4
    argv = [sys.executable, "-m", "token_translator", "account-requests"]
    argv += ["--config", str(folder / "tokens.toml")]
    done = await asyncio.to_thread(
        subprocess.run, argv, check=True, timeout=60, capture_output=True, text=True
    )
    _, *requests = done.stdout.splitlines()
    assert [line.split()[1:3] for line in requests] == [["newcomer", "site1"]]


async def test_pam_deploy_for_the_suspended_is_refused(pam: Site) -> None:
    """Somebody who is blocked is told so, and asks for nothing."""
    pam.registry.has("gone", "gone", state="blocked")
    status, document = await get(pam, "/user/deploy", pam.issuer.token("gone"))
    assert (status, document["state"]) == (403, "suspended")


async def test_pam_get_changes_nothing_where_it_is_switched_off(start: Start) -> None:
    """Without `change_by_get` there is POST alone; a GET never gives a one-time password."""
    async with start(PAM.replace("[pam]", "[pam]\nchange_by_get = false")) as site:
        token = site.issuer.token("newcomer")
        for path in ("/user/deploy", "/user/generate_otp"):
            headers = {"Authorization": f"Bearer {token}"}
            async with site.client.get(path, headers=headers) as answer:
                assert (answer.status, answer.headers["Allow"]) == (405, "POST")
        assert (await post(site, "/user/deploy", token))[0] == 202
    async with start(PAM) as site:
        answer_ = await get(site, "/user/generate_otp", site.issuer.token())
        assert answer_ == (200, {"supported": False, "successful": False})


async def test_pam_takes_as_long_for_a_name_that_is_unknown(pam: Site) -> None:
    """How long an answer takes says nothing about which accounts there are."""
    wrong = "A" * 26
    taken: dict[str, list[float]] = {"alice": [], "nobody-at-all": []}
    for _ in range(40):
        for name, times in taken.items():
            before = time.perf_counter()
            assert (await get(pam, "/verify_user", wrong, username=name))[0] == 401
            times.append(time.perf_counter() - before)
    medians = [statistics.median(times) for times in taken.values()]
    assert max(medians) < 2 * min(medians), medians

"""What hosts and clients get: known_hosts, ssh_config, host certificates and their renewal."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headgate.clock import SystemClock
from headgate.settings import SettingsError, load
from tests.service.token_translator.conftest import Site, Start
from tests.service.token_translator.service_files import write_tokens
from token_translator import host_signatures
from token_translator.database import open_async_database
from token_translator.enrolments import Enrolments
from token_translator.nodes import lines
from token_translator.nodes.settings import Node
from token_translator.routes_hosts import CHECKS_AT_ONCE
from token_translator.settings import Settings

HOSTS = """
[hosts]
vouched = ["*.site.example", "[login1.site.example]:2222"]
login = [{ host = "login*.site.example" }, { host = "login1.site.example", port = 2222 }]
"""


@pytest.fixture
async def hosts(start: Start, make_signer: Callable[..., Any]) -> AsyncIterator[Site]:
    """A translator that names hosts, with a signer that certifies those of site.example."""
    signer = make_signer(hostnames='["*.site.example", "127.0.0.1"]')
    async with start(HOSTS, own=signer) as site:
        yield site


@pytest.fixture
def host_key(tmp_path: Path) -> Path:
    """A host's key pair."""
    return new_key(tmp_path / "ssh_host_ed25519_key")


def new_key(path: Path, kind: str = "ed25519") -> Path:
    """A key pair by ssh-keygen."""
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "x", "-f", path], check=True)
    return path


def public(key: Path) -> str:
    """Its public half as it is signed: type and base64."""
    return " ".join(key.with_suffix(".pub").read_text().split()[:2])


def enrol(folder: Path, *names: str, hours: int = 24) -> str:
    """What `headgate-tokens enrol-host` prints."""
    return verb(folder, "enrol-host", "--hours", str(hours), *names).strip()


def verb(folder: Path, *words: str) -> str:
    """A verb of the command, as the administrator types it."""
    command = [sys.executable, "-m", "token_translator"]
    argv = [*command, words[0], "--config", str(folder / "tokens.toml"), *words[1:]]
    done = subprocess.run(argv, check=True, timeout=60, capture_output=True, text=True)
    return done.stdout


def signature(key: Path, text: str, namespace: str = "headgate-host-certificate") -> str:
    """An SSH signature over a text."""
    argv = ["ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", namespace]
    done = subprocess.run(argv, check=True, input=text.encode(), capture_output=True)
    return done.stdout.decode()


def renewal(key: Path, **changes: Any) -> dict[str, Any]:
    """The body of a renewal, and with a token of an enrolment."""
    at = changes.get("at") or int(time.time())
    text = f"headgate-host-certificate {at} {public(key)}"
    return {"public_key": public(key), "at": at, "signature": signature(key, text), **changes}


async def ask(site: Site, body: object, token: str | None = None) -> tuple[int, Any]:
    """`POST /v1/host-certificates`."""
    async with await site.post("/v1/host-certificates", body, token=token) as answer:
        return answer.status, await answer.json()


async def test_hosts_known_hosts_is_what_ssh_reads(hosts: Site, tmp_path: Path) -> None:
    """The host authorities are vouched for by name and port, in lines that ssh finds."""
    async with hosts.client.get("/v1/known_hosts") as answer:
        text = await answer.text()
        assert answer.content_type == "text/plain"
    assert text.startswith("@cert-authority *.site.example,[login1.site.example]:2222 ssh-ed25519 ")
    path = tmp_path / "known_hosts"
    path.write_text(text)
    for name, found in (("login7.site.example", 0), ("[login1.site.example]:2222", 0), ("a.b", 1)):
        argv = ["ssh-keygen", "-F", name, "-f", str(path)]
        done = await asyncio.to_thread(subprocess.run, argv, check=False, capture_output=True)
        assert done.returncode == found, name


async def test_hosts_publish_nothing_that_is_not_configured(site: Site) -> None:
    """Without names there are no lines: an authority is never vouched for in general."""
    for path, code in (("known_hosts", "no_known_hosts"), ("ssh_config", "no_login_nodes")):
        async with site.client.get(f"/v1/{path}") as answer:
            assert (answer.status, (await answer.json())["code"]) == (404, code)


async def test_hosts_ssh_config_is_what_ssh_reads(hosts: Site, tmp_path: Path) -> None:
    """The snippet gives a stock ssh port, account, key and strict checking."""
    async with hosts.client.get("/v1/ssh_config", params={"account": "alice"}) as answer:
        path = tmp_path / "config"
        path.write_text(await answer.text())
    argv = ["ssh", "-G", "-F", str(path), "login2.site.example"]
    done = await asyncio.to_thread(subprocess.run, argv, check=True, capture_output=True, text=True)
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    assert (said["user"], said["port"]) == ("alice", "22")
    assert said["stricthostkeychecking"] in {"yes", "true"}
    assert said["certificatefile"].endswith("id_ed25519-cert.pub")


@pytest.mark.parametrize("account", ["a b", "a\nProxyCommand x", "-x", "root;", "A" * 40])
async def test_hosts_ssh_config_takes_no_other_words(hosts: Site, account: str) -> None:
    """What is no account's name never gets into a configuration."""
    async with hosts.client.get("/v1/ssh_config", params={"account": account}) as answer:
        assert answer.status == 400


@pytest.mark.parametrize(
    "line",
    [
        'vouched = ["*"]',
        'vouched = ["*,github.com"]',
        'vouched = ["a b"]',
        'vouched = ["a\\n@cert-authority *"]',
        'vouched = ["[*]:22"]',
        'login = [{ host = "a\\n  ProxyCommand x" }]',
        'login = [{ host = "-oProxyCommand=x" }]',
        'known_hosts = ["@cert-authority * ssh-ed25519 AAAAAAAAAAAAAAAAAAAA"]',
        'known_host = ["x"]',
    ],
)
def test_hosts_settings_refuse_more_than_names(folder: Path, line: str) -> None:
    """Patterns for the whole world, several words and other lines are mistakes, said at start."""
    text = write_tokens(
        folder, url="http://127.0.0.1:1", registry="", socket="", issuer="https://a/"
    )
    path = folder / "broken.toml"
    path.write_text(f"{text}\n[hosts]\n{line}\n")
    with pytest.raises(SettingsError):
        load(path, Settings)


async def test_hosts_enrol_once(hosts: Site, folder: Path, host_key: Path) -> None:
    """A token gives one key one certificate for its names, and nothing a second time."""
    token = await asyncio.to_thread(enrol, folder, "login1.site.example", "127.0.0.1")
    status, document = await ask(hosts, renewal(host_key), token)
    assert status == 201, document
    assert document["hostnames"] == ["login1.site.example", "127.0.0.1"]
    argv = ["ssh-keygen", "-L", "-f", "-"]
    shown = await asyncio.to_thread(
        subprocess.run,
        argv,
        check=True,
        capture_output=True,
        input=document["certificate"].encode(),
    )
    assert b"ed25519-cert-v01@openssh.com host certificate" in shown.stdout
    assert b"login1.site.example" in shown.stdout
    other = new_key(folder / "other")
    for key in (other, host_key):
        status, document = await ask(hosts, renewal(key), token)
        assert (status, document["code"]) == (401, "enrolment_unknown")
    listed = await asyncio.to_thread(verb, folder, "hosts")
    assert "login1.site.example 127.0.0.1" in listed
    assert "local:" in listed


async def test_hosts_tokens_are_stored_hashed(hosts: Site, folder: Path) -> None:
    """Neither the database's files nor its log hold a token."""
    del hosts
    token = await asyncio.to_thread(enrol, folder, "login1.site.example")
    stored = await asyncio.to_thread(files_of, folder)
    assert b"login1.site.example" in stored
    assert token.removeprefix("hgenrol-").encode() not in stored


def files_of(folder: Path) -> bytes:
    """All that is in the files of the database."""
    return b"".join(path.read_bytes() for path in sorted(folder.glob("tokens.sqlite*")))


async def test_hosts_tokens_end(hosts: Site, folder: Path, host_key: Path) -> None:
    """A token that is too old is none."""
    engine = open_async_database(f"sqlite+aiosqlite:///{folder}/tokens.sqlite")
    token = await Enrolments(engine).make(
        ["login1.site.example"],
        by="local:root",
        now=SystemClock().now() - timedelta(hours=2),
        lifetime=timedelta(hours=1),
    )
    await engine.dispose()
    status, document = await ask(hosts, renewal(host_key), token)
    assert (status, document["code"]) == (401, "enrolment_unknown")


@pytest.mark.parametrize(
    "name", ["UPPER.example", "a b", "-x", "a,b", "*.site.example", "a..b", ""]
)
async def test_hosts_are_enrolled_under_names(hosts: Site, folder: Path, name: str) -> None:
    """What is no host's name gets no token."""
    del hosts
    with pytest.raises(subprocess.CalledProcessError) as error:
        await asyncio.to_thread(enrol, folder, "--", name)
    assert error.value.returncode == 78


async def test_hosts_beyond_the_signers_ceilings(hosts: Site, folder: Path, host_key: Path) -> None:
    """A name that the signer's root-owned file does not allow gets no certificate."""
    token = await asyncio.to_thread(enrol, folder, "github.com")
    status, document = await ask(hosts, renewal(host_key), token)
    assert (status, document["code"]) == (403, "ceiling")


async def test_hosts_renew_with_their_own_key(hosts: Site, folder: Path, host_key: Path) -> None:
    """An enrolled key's signature of now is enough for the next certificate, until forgotten."""
    token = await asyncio.to_thread(enrol, folder, "login1.site.example")
    _, first = await ask(hosts, renewal(host_key), token)
    status, second = await ask(hosts, renewal(host_key))
    assert status == 201, second
    assert (second["hostnames"], second["serial"] > first["serial"]) == (
        ["login1.site.example"],
        True,
    )
    fingerprint = (await asyncio.to_thread(verb, folder, "hosts")).splitlines()[1].split()[1]
    await asyncio.to_thread(verb, folder, "forget-host", fingerprint)
    status, document = await ask(hosts, renewal(host_key))
    assert (status, document["code"]) == (403, "host_unknown")


async def test_hosts_renewal_needs_the_key(hosts: Site, folder: Path, host_key: Path) -> None:
    """Another key, another time, other words, another purpose or nothing at all: refused."""
    token = await asyncio.to_thread(enrol, folder, "login1.site.example")
    await ask(hosts, renewal(host_key), token)
    other, now = new_key(folder / "other"), int(time.time())
    text = f"headgate-host-certificate {now} {public(host_key)}"
    cases: dict[str, dict[str, Any]] = {
        "another's": renewal(host_key, signature=signature(other, text), at=now),
        "another time": renewal(host_key, at=now) | {"at": now - 1},
        "other words": renewal(host_key, at=now, signature=signature(host_key, text + " ")),
        "another purpose": renewal(host_key, at=now, signature=signature(host_key, text, "file")),
        "no signature": renewal(host_key, signature="x"),
        "old": renewal(host_key, at=now - 400),
        "of the future": renewal(host_key, at=now + 400),
        "nothing": {"public_key": public(host_key)},
    }
    for name, body in cases.items():
        status, document = await ask(hosts, body)
        assert status == 401, (name, document)
    status, document = await ask(hosts, renewal(other))
    assert (status, document["code"]) == (403, "host_unknown")
    assert (await ask(hosts, renewal(host_key)))[0] in {201, 429}


async def test_hosts_ask_at_their_own_pace(hosts: Site, folder: Path, host_key: Path) -> None:
    """A host that asks for one certificate after the other is told to wait."""
    token = await asyncio.to_thread(enrol, folder, "login1.site.example")
    await ask(hosts, renewal(host_key), token)
    body = renewal(host_key)
    answers = [await ask(hosts, body) for _ in range(8)]
    assert [status for status, _ in answers] == [201] * 6 + [429] * 2


async def test_hosts_are_not_kept_from_renewing_by_strangers(
    hosts: Site, folder: Path, host_key: Path
) -> None:
    """Who knows a host's public key and cannot sign uses up nothing of the host's."""
    token = await asyncio.to_thread(enrol, folder, "login1.site.example")
    await ask(hosts, renewal(host_key), token)
    body = renewal(host_key)
    strangers = [await ask(hosts, {**body, "signature": "x"}) for _ in range(8)]
    assert [document["code"] for _, document in strangers] == ["signature_wrong"] * 8
    assert (await ask(hosts, body))[0] == 201


async def test_hosts_signatures_are_checked_a_few_at_a_time(
    hosts: Site, folder: Path, host_key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many strangers come at once, few processes are at work for them."""
    token = await asyncio.to_thread(enrol, folder, "login1.site.example")
    await ask(hosts, renewal(host_key), token)
    signed, now, most = host_signatures.signed, 0, 0

    async def counted(**words: str) -> bool:
        nonlocal now, most
        now += 1
        most = max(most, now)
        try:
            return await signed(**words)
        finally:
            now -= 1

    monkeypatch.setattr(host_signatures, "signed", counted)
    body = renewal(host_key, signature="x")
    answers = await asyncio.gather(*(ask(hosts, body) for _ in range(12)))
    assert {status for status, _ in answers} == {401}
    assert most == CHECKS_AT_ONCE


@pytest.mark.site  # a node's script is root's
async def test_hosts_enrol_their_own_key_alone(
    hosts: Site, folder: Path, host_key: Path, tmp_path: Path
) -> None:
    """A token for one host takes no other's key, nor a person's, and is good for its own still."""
    token = await asyncio.to_thread(enrol, folder, "login1.site.example")
    assert (await ask(hosts, renewal(host_key), token))[0] == 201
    mine = new_key(tmp_path / "lab9")
    token = await asyncio.to_thread(enrol, folder, "lab9.site.example")
    text = f"headgate-host-certificate {int(time.time())} {public(host_key)}"
    for changes, code in (
        ({"at": None, "signature": None}, "signature_missing"),
        ({"signature": signature(mine, text)}, "signature_wrong"),
        ({"signature": renewal(mine)["signature"]}, "signature_wrong"),
        ({"at": int(time.time()) - 3600}, "signature_stale"),
    ):
        status, document = await ask(hosts, renewal(host_key, **changes), token)
        assert (status, document["code"]) == (401, code), changes
    # Its owner itself has to have it forgotten first.
    status, document = await ask(hosts, renewal(host_key), token)
    assert (status, document["code"]) == (409, "host_enrolled")
    status, document = await ask(hosts, renewal(host_key))
    assert (status, document["hostnames"]) == (201, ["login1.site.example"])
    status, document = await ask(hosts, renewal(mine), token)
    assert (status, document["hostnames"]) == (201, ["lab9.site.example"])
    token = await asyncio.to_thread(enrol, folder, "lab9.site.example")
    assert (await ask(hosts, renewal(mine), token))[0] == 201


async def test_hosts_printed_script_enrols_and_renews(
    hosts: Site, folder: Path, host_key: Path
) -> None:
    """The script of `node-setup --print host-certificate` does both, with curl and ssh-keygen."""
    node = Node(
        realm="site1",
        uid_first=20000,
        uid_last=29999,
        tokens=hosts.url,
        host_certificate=f"{host_key}-cert.pub",
    )
    script = folder / "headgate-host-certificate"
    script.write_text(lines.host_certificate(node))
    token = await asyncio.to_thread(enrol, folder, "login1.site.example")
    serials = []
    for words, stdin in ((["enrol"], f"{token}\n"), ([], "")):
        done = await asyncio.to_thread(
            subprocess.run,
            ["sh", str(script), *words],
            input=stdin,
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        argv = ["ssh-keygen", "-L", "-f", f"{host_key}-cert.pub"]
        shown = await asyncio.to_thread(subprocess.run, argv, check=True, capture_output=True)
        serials.append(shown.stdout.split(b"Serial: ")[1].split()[0])
    assert serials[0] != serials[1]

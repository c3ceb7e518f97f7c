"""A person's own machine before a real site: stock ssh and its friends with nothing but a token."""

import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest

from headgate.command import Completed
from testbed.site import Site

pytestmark = pytest.mark.site

BROWSER = """#!/bin/sh
# Signs in as alice: opens the page, posts its form, and follows the redirect to the loopback.
page=$(curl -s -o /dev/null -w '%{redirect_url}' "$1")
exec curl -s -L -o /dev/null -d "${page#*\\?}" -d username=alice "${page%%\\?*}"
"""


@dataclass
class Laptop:
    """An account of the site's machine that has no rights of its own there, and a home."""

    site: Site
    user: str

    async def __call__(self, command: str, *, timeout: float = 120.0, **env: str) -> Completed:  # noqa: ASYNC109 - as Site.exec has it
        """Run a shell command there."""
        return await self.site.exec(
            ("sh", "-c", f"cd; {command}"), user=self.user, env=env, timeout=timeout
        )

    async def write(self, name: str, content: str, mode: str = "600") -> None:
        """A file of theirs."""
        command = f"mkdir -p $(dirname {name}); cat > {name}; chmod {mode} {name}"
        argv = ("sh", "-c", f"cd; {command}")
        (await self.site.exec(argv, user=self.user, stdin=content.encode())).checked()

    async def log_in(self) -> None:
        """`headgate login`, with a browser."""
        browser = f"{self.site.account(self.user).home}/browser"
        done = await self(f"headgate login {self.site.addresses.gateway}", BROWSER=browser)
        assert "Logged in" in done.checked().stderr.decode()


@pytest.fixture(scope="module")
async def people(site: Site) -> Site:
    """The site, which knows alice."""
    await site.import_accounts()
    return site


@pytest.fixture
async def laptop(people: Site, local_user: Callable[..., Awaitable[str]]) -> AsyncIterator[Laptop]:
    """A machine of alice's, new each time: it has a browser, and has never heard of the site."""
    machine = Laptop(people, await local_user())
    await machine.write("browser", BROWSER, "700")
    yield machine
    await machine(f"[ -z '{machine.user}' ] || pkill -u {machine.user} -x ssh-agent; true")


async def test_login_in_a_browser_then_ssh(laptop: Laptop):
    """Two commands from nothing to a shell as one's own account, with the command's status."""
    await laptop.log_in()
    done = await laptop("headgate ssh 127.0.0.1 'id -un; exit 7'")
    assert (done.stdout.decode().strip(), done.status) == ("alice", 7)
    piped = await laptop("printf 'a\\0b' | headgate ssh 127.0.0.1 cat")
    assert piped.checked().stdout == b"a\0b"
    options = await laptop("headgate ssh 127.0.0.1 -o BatchMode=yes -- id -un")
    assert options.checked().stdout == b"alice\n"
    shown = (await laptop("headgate whoami")).checked().stdout.decode()
    assert re.search(r"certificate +alice, until \d\d:\d\d:\d\d", shown)


async def test_the_host_key_is_always_checked(laptop: Laptop):
    """The site's own word on its keys is enough; another key, or none, ends the connection."""
    await laptop.log_in()
    (await laptop("headgate ssh-config --write --yes")).checked()
    careless = "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n"
    await laptop.write("careless", careless)
    await laptop("cat careless >> .ssh/config")
    plain = "ssh -o BatchMode=yes 127.0.0.1 true"
    (await laptop(plain)).checked()
    (await laptop("headgate ssh 127.0.0.1 true")).checked()
    other = "ssh-keygen -q -t ed25519 -N '' -f other"
    (await laptop(other)).checked()
    key = (await laptop("cut -d' ' -f1,2 other.pub")).checked().stdout.decode().strip()
    port = laptop.site.addresses.ssh["port"]
    published = ".local/state/headgate/ssh/*/known_hosts"
    for line in (f"[127.0.0.1]:{port} {key}", f"elsewhere.example.org {key}", ""):
        (await laptop(f"echo '{line}' > $(ls {published})")).checked()
        for command in (plain, "headgate ssh 127.0.0.1 -o BatchMode=yes true"):
            done = await laptop(command)
            assert done.status == 255
            assert "Host key verification failed" in done.stderr.decode()


async def test_stock_tools_just_work(laptop: Laptop):
    """After `ssh-config --write`: ssh, scp, sftp, rsync and git, with no option at all."""
    await laptop.log_in()
    wrote = (await laptop("headgate ssh-config --write --yes")).checked().stderr.decode()
    assert "Include headgate/*.conf" in wrote
    assert (await laptop("ssh 127.0.0.1 id -un")).checked().stdout == b"alice\n"
    home = f"{laptop.user}-things"
    command = f"""
set -e
ssh 127.0.0.1 'rm -rf {home} && mkdir {home}'
head -c 3000000 /dev/urandom > data
scp -q data 127.0.0.1:{home}/by-scp
echo "put data {home}/by-sftp" | sftp -q -b - 127.0.0.1 > /dev/null
rsync data 127.0.0.1:{home}/by-rsync
ssh 127.0.0.1 'cd {home} && cat by-scp by-sftp by-rsync' > back
cat data data data | cmp - back
ssh 127.0.0.1 'git init -q --bare {home}/repo'
git init -q work && cd work && git config user.email a@example.org && git config user.name a
echo x > x && git add x && git commit -q -m x && git push -q 127.0.0.1:{home}/repo HEAD:main
git clone -q -b main 127.0.0.1:{home}/repo ../again && cmp x ../again/x
"""
    done = await laptop(command)
    assert done.status == 0, done.stderr.decode()
    assert done.stderr == b""


async def test_a_certificate_is_renewed_when_ssh_needs_it(laptop: Laptop):
    """Plain ssh gets a certificate where there is none; a good one is left alone."""
    await laptop.log_in()
    (await laptop("headgate ssh-config --write --yes")).checked()
    directory = ".local/state/headgate/ssh/*"
    certificate = f"cat {directory}/id_ed25519-cert.pub"
    first = (await laptop(certificate)).checked().stdout
    (await laptop("ssh 127.0.0.1 true")).checked()
    assert (await laptop(certificate)).stdout == first
    (await laptop(f"rm {directory}/id_ed25519-cert.pub; ssh 127.0.0.1 true")).checked()
    second = (await laptop(certificate)).checked().stdout
    assert second != first
    (await laptop(f"rm {directory}/id_ed25519; ssh 127.0.0.1 true")).checked()
    assert (await laptop(certificate)).stdout != second


async def test_many_ssh_at_once_renew_once(laptop: Laptop):
    """Ten plain ssh that start together without a certificate ask for one, and all get in."""
    await laptop.log_in()
    (await laptop("headgate ssh-config --write --yes")).checked()
    remove = "rm .local/state/headgate/ssh/*/id_ed25519-cert.pub"
    ten = "seq 10 | xargs -P 10 -I % ssh -o BatchMode=yes 127.0.0.1 echo %"
    done = (await laptop(f"{remove}; {ten}")).checked()
    assert sorted(map(int, done.stdout.split())) == list(range(1, 11))


async def test_an_ended_login_fails_at_once_and_says_so(laptop: Laptop):
    """Without a terminal nothing hangs: plain ssh ends in seconds and names the next step."""
    await laptop.log_in()
    (await laptop("headgate ssh-config --write --yes")).checked()
    state = ".local/state/headgate"
    (await laptop(f"rm {state}/ssh/*/id_ed25519-cert.pub {state}/logins/*.json")).checked()
    began = time.monotonic()
    done = await laptop("ssh -o BatchMode=yes 127.0.0.1 true")
    assert time.monotonic() - began < 10
    assert done.status == 255
    assert f"headgate login {laptop.site.addresses.gateway}" in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


async def test_keys_live_in_the_agent_with_a_lifetime(laptop: Laptop):
    """With an ssh-agent no private key is on disk, and only the newest one is in the agent."""
    await laptop.log_in()
    agent = {"SSH_AUTH_SOCK": f"{laptop.site.account(laptop.user).home}/agent"}
    (await laptop("ssh-agent -a $HOME/agent > /dev/null")).checked()
    (await laptop("headgate ssh-config --write --yes", **agent)).checked()
    first = (await laptop("ssh-add -L", **agent)).checked().stdout.decode().splitlines()
    assert sorted(line.split()[0] for line in first) == [
        "ssh-ed25519",
        "ssh-ed25519-cert-v01@openssh.com",
    ]
    assert (await laptop("ls .local/state/headgate/ssh/*/id_ed25519")).status != 0
    assert (await laptop("ssh 127.0.0.1 id -un", **agent)).checked().stdout == b"alice\n"
    (await laptop("headgate ssh-renew --force", **agent)).checked()
    second = (await laptop("ssh-add -L", **agent)).checked().stdout.decode().splitlines()
    assert len(second) == 2
    assert not set(first) & set(second)
    assert (await laptop("ssh 127.0.0.1 id -un", **agent)).checked().stdout == b"alice\n"
    status = (await laptop("headgate ssh-config --status", **agent)).checked().stdout.decode()
    assert re.search(r"alice +127\.0\.0\.1 +\d\d:\d\d:\d\d +ssh-agent", status)
    (await laptop("headgate logout", **agent)).checked()
    assert "no identities" in (await laptop("ssh-add -L", **agent)).stdout.decode()


async def test_an_agent_that_is_gone_is_noticed(laptop: Laptop):
    """A certificate whose key died with its agent is replaced, by one with a key in a file."""
    await laptop.log_in()
    agent = {"SSH_AUTH_SOCK": f"{laptop.site.account(laptop.user).home}/agent"}
    (await laptop("ssh-agent -a $HOME/agent > /dev/null")).checked()
    (await laptop("headgate ssh-config --write --yes", **agent)).checked()
    assert (await laptop("ssh 127.0.0.1 id -un")).checked().stdout == b"alice\n"
    assert (await laptop("stat -c %a .local/state/headgate/ssh/*/id_ed25519")).stdout == b"600\n"


async def test_delegations_are_seen_and_ended(laptop: Laptop):
    """What the gateway may do for alice is listed, and she ends it by the row's beginning."""
    await laptop.log_in()
    submit = "headgate job submit -- sleep 600"
    row = (await laptop(submit)).checked().stdout.decode().strip()
    listed = (await laptop("headgate delegations")).checked().stdout.decode()
    assert re.search(rf"{row} +headgate-gateway +active", listed)
    (await laptop(f"headgate delegations end {row[:13]}")).checked()
    again = (await laptop("headgate delegations")).checked().stdout.decode()
    assert re.search(rf"{row} +headgate-gateway +ended", again)
    await laptop(f"headgate job cancel {row}")

"""What an administrator reads at the host's terminal: whom a command concerned, what is wrong."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.service.token_translator.denial_world import WHY, certificate

Run = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
def tokens(site: Any, registry: Any, folder: Path) -> Run:
    """Runs `headgate-tokens`: status, output, complaints."""
    registry.issuer = site.issuer.url

    async def run(*words: str) -> tuple[int, str, str]:
        argv = [sys.executable, "-m", "token_translator", words[0]]
        argv += ["--config", str(folder / "tokens.toml"), *words[1:]]
        ended = await asyncio.to_thread(
            subprocess.run, argv, check=False, capture_output=True, text=True, timeout=60
        )
        assert "Traceback" not in ended.stderr
        return ended.returncode, ended.stdout, ended.stderr

    return run


async def test_suspend_says_whom(site: Any, tokens: Run, key_line: str) -> None:
    """The account, and how many certificates were revoked; and nothing else on the terminal."""
    for _ in range(2):
        assert (await certificate(site, key_line, "alice")).status == 201
    who = ("--iss", site.issuer.url, "--sub", "alice")
    status, said, complaints = await tokens("suspend", *who, "--reason", WHY)
    assert (status, complaints) == (0, "")
    # Others that alice got from the same signer are revoked with them.
    revoked = re.search(r"certificates revoked: (\d+)", said)
    assert revoked is not None
    assert int(revoked[1]) >= 2
    assert "account: alice (active) in site1" in said
    listed = (await tokens("holds"))[1].splitlines()
    assert listed[0].split() == ["HOLD", "WHO", "REALM", "BY", "SINCE", "REASON"]
    assert f"alice@{site.issuer.url}" in listed[1]
    (await tokens("resume", listed[1].split()[0]))
    assert await tokens("holds") == (0, "", "")


async def test_suspend_of_a_mistyped_subject_warns(site: Any, tokens: Run) -> None:
    """Nobody has that subject: the hold is made, and it is said that it may hit nobody."""
    who = ("--iss", site.issuer.url, "--sub", "alcie")
    status, said, complaints = await tokens("suspend", *who, "--reason", WHY)
    assert (status, "certificates revoked: 0" in said) == (0, True)
    assert "WARNING: the registry knows nobody of this subject" in complaints
    assert f"headgate-tokens resume {said.split()[0]}" in complaints


async def test_suspend_by_account(site: Any, registry: Any, tokens: Run, key_line: str) -> None:
    """The name that one has in an emergency is enough, where it is one person's."""
    status, said, _ = await tokens("suspend", "--account", "alice", "--reason", WHY)
    assert (status, f"alice@{site.issuer.url}" in said) == (0, True)
    assert (await certificate(site, key_line, "alice")).status == 403
    status, said, complaints = await tokens("suspend", "--account", "nobody", "--reason", WHY)
    assert (status, said) == (1, "")
    assert "nobody has the account nobody" in complaints
    registry.has("carol", "shared")
    registry.has("dave", "shared")
    status, said, complaints = await tokens("suspend", "--account", "shared", "--reason", WHY)
    assert (status, said) == (1, "")
    assert f"--iss {site.issuer.url} --sub dave" in complaints


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("suspend", "--reason", "x"), "name somebody by --iss and --sub, or by --account"),
        (("resume", "nosuch"), "'nosuch' is no hold's id"),
        (("revoke", "--reason", "x", "--serial", "20-10"), "no range of serials such as 10-20"),
        (("revoke", "--reason", "x", "--serial", "seven"), "'seven' is no serial"),
        (("revoke", "--reason", "x", "--key", "SHA256:abc"), "no fingerprint: SHA256: and 43"),
        (("revoke", "--reason", "x", "--key", "/no/such"), "/no/such: No such file or directory\n"),
        (("revoke", "--reason", "x", "--authority", "me"), "'me' is no fingerprint"),
        (("explain", "--token-file", "/no/such"), "/no/such: No such file or directory\n"),
    ],
)
async def test_wrong_words(tokens: Run, words: tuple[str, ...], expected: str) -> None:
    """What a command cannot make sense of is told in the administrator's words."""
    status, _, complaints = await tokens(*words)
    assert status in {2, 78}
    assert expected in complaints


async def test_what_was_revoked_is_said(tokens: Run, tmp_path: Path, key_line: str) -> None:
    """A key that was revoked is named as one, not as no serials."""
    (tmp_path / "key.pub").write_text(key_line)
    words = ("revoke", "--reason", WHY, "--key", str(tmp_path / "key.pub"))
    status, said, _ = await tokens(*words)
    assert (status, "1 key, whatever is certified for it" in said) == (0, True), said

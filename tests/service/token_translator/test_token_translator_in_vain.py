"""What `check-config` and `enrol-host` say of what can never work."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.service.token_translator.service_files import write_signer
from tests.service.token_translator.signer_requests import connected, sign
from tests.service.token_translator.test_token_translator_commands import run

RULE = '\n[[rules]]\nname = "odd"\n'


@pytest.mark.parametrize(
    ("rule", "ceilings", "words"),
    [
        ('key_types = ["sk-ssh-ed25519@openssh.com"]', "", "rule 'odd' can never hold: of its key"),
        (
            'extensions = ["permit-port-forwarding"]',
            "",
            "extensions permit-port-forwarding are abo",
        ),
        ("lifetime = 7200", "max_lifetime = 3600", "lifetime 7200 s is above the signer's ceiling"),
        ("", "logins = false", "allow no logins"),
        ("", 'key_types = ["sk-ssh-ed25519@openssh.com"]', "allow none of its key_types"),
    ],
)
async def test_rules_in_vain(site: Any, folder: Path, rule: str, ceilings: str, words: str) -> None:
    """A rule that gives nothing is understood, printed, and warned of."""
    assert site
    (folder / "odd.toml").write_text((folder / "tokens.toml").read_text() + RULE + rule)
    (folder / "ceilings.toml").write_text(ceilings)
    arguments = ("--config", folder / "odd.toml", "--ceilings", folder / "ceilings.toml")
    status, output, complaints = await run("token_translator", "check-config", *arguments)
    assert (status, output[:1]) == (0, "{")
    assert complaints.startswith("headgate-tokens: warning: rule 'odd'")
    assert words in complaints
    assert (await run("token_translator", "check-config", *arguments))[1] == output


async def test_rules_without_ceilings(site: Any, folder: Path) -> None:
    """Where the ceilings are on another host, it is said that they were not looked at."""
    assert site
    arguments = ("--config", folder / "tokens.toml", "--ceilings", folder / "none")
    status, _, complaints = await run("token_translator", "check-config", *arguments)
    assert status == 0
    assert complaints == (
        f"headgate-tokens: ceilings: not looked at: {folder}/none: No such file or directory\n"
    )


async def test_a_host_beyond_the_ceilings_is_not_enrolled(site: Any, folder: Path) -> None:
    """No token for a name that the signer never certifies; without ceilings, it is said."""
    assert site
    (folder / "ceilings.toml").write_text('hostnames = ["*.hpc.example.org"]')
    config = ("--config", folder / "tokens.toml", "--ceilings")
    words = ("enrol-host", *config, folder / "ceilings.toml")
    status, token, complaints = await run("token_translator", *words, "a.hpc.example.org")
    assert (status, token[:8], complaints) == (0, "hgenrol-", "")
    status, token, complaints = await run("token_translator", *words, "localhost")
    assert (status, token) == (78, "")
    assert "localhost: the signer gives no certificate for this name" in complaints
    status, token, complaints = await run(
        "token_translator", "enrol-host", *config, folder / "none", "localhost"
    )
    assert (status, token[:8]) == (0, "hgenrol-")
    assert "the signer's ceilings were not looked at" in complaints


async def test_empty_listings(tmp_path: Path) -> None:
    """A signer that was only just made says so, where there is nothing to list."""
    write_signer(tmp_path)
    config = ("--config", tmp_path / "signer.toml")
    status, said, complaints = await run("token_translator.signer", "authorities", *config)
    assert (status, said) == (0, "")
    assert "none is written down yet" in complaints
    found = await run("token_translator.signer", "ledger", "search", *config)
    assert found == (1, "", "nothing found\n")


async def test_authorities_that_do_not_fit(make_signer: Any) -> None:
    """`check-config` refuses a revoked authority as `serve` does, and warns of one left out."""
    signer = await asyncio.to_thread(make_signer)
    async with connected(signer) as client:
        await sign(client)
    await asyncio.to_thread(signer.stop)
    module, config = "token_translator.signer", ("--config", signer.config)
    status, said, _ = await run(module, "authorities", *config)
    name = next(line.split()[2] for line in said.splitlines() if line.startswith("user"))
    text = signer.config.read_text()
    signer.config.write_text(text.replace("/user_ca", "/other_ca"))
    assert (await run(module, "init", *config))[0] == 0
    status, _, complaints = await run(module, "check-config", *config)
    assert status == 0
    assert f"warning: user_ca is without {name}, which signed 1 unexpired certificate" in complaints
    signer.config.write_text(text)
    revoke = ("revoke", *config, "--authority", name, "--active", "--reason", "stolen")
    assert (await run(module, *revoke))[0] == 0
    status, _, complaints = await run(module, "check-config", *config)
    assert status == 78
    assert f"{name} is revoked: no certificate of it is accepted" in complaints

"""The settings that the documentation shows for the front door and for its translator."""

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from token_translator.frontdoor.settings import Settings

DOCS = Path(__file__).resolve().parents[3] / "docs/operators"


def shown(page: str, name: str) -> dict[str, Any]:
    """The first TOML of that name on a page."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.search(rf"```toml\n# (?:/etc/headgate/)?{name}\n(.*?)```", text, re.DOTALL)
    assert found
    return tomllib.loads(found[1])


def test_documented_settings_fit_each_other() -> None:
    """Tokens for the translator are for the same audience on both sides, at the same address."""
    door = msgspec.convert(shown("front-door.md", "frontdoor.toml"), Settings)
    tokens = shown("README.md", "tokens.toml")
    assert door.token_translator.url == tokens["url"]
    assert door.token_translator.audience == tokens["audience"]
    assert door.realm in tokens["realms"]
    (peer,) = shown("front-door.md", "tokens.toml")["peers"]
    assert peer["audience"] == door.audience
    assert peer["instance"] == door.identity.instance
    trusted = {issuer["url"] for issuer in tokens["issuers"]}
    assert {issuer.url for issuer in door.issuers} <= trusted

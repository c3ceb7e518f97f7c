"""What is beyond a ceiling is refused by its name, with what was asked and what is allowed."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from token_translator.grants import Grant
from token_translator.signer.ceilings import CeilingError, Ceilings, check

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
KEY_ID = "v1;sub=alice"
CEILINGS = Ceilings(session_programs=("/x/session",), principals=("hg:site1:*",), max_lifetime=3600)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (
            {"valid_before": NOW + timedelta(hours=2)},
            "max_lifetime: asked 7200 s, allowed 3600 s",
        ),
        (
            {"principals": ("hg:site2:alice",)},
            "principals: asked hg:site2:alice, allowed hg:site1:*",
        ),
        ({"principals": ()}, "principals: asked 0 of them, allowed 1 to 4"),
        (
            {"extensions": ("permit-pty", "permit-port-forwarding")},
            "extensions: asked permit-port-forwarding, allowed permit-pty",
        ),
        (
            {"force_command": "/bin/sh", "extensions": ()},
            "session_programs: asked /bin/sh, allowed /x/session",
        ),
        (
            {"force_command": "/x/session", "extensions": ("permit-pty",)},
            "extensions: asked permit-pty, allowed none beside a force-command",
        ),
        (
            {"force_command": "/bin/sh\n" + "x" * 5000, "extensions": ()},
            "session_programs: asked '/bin/sh\\n" + "x" * 70,
        ),
    ],
)
def test_a_refusal_names_the_ceiling(asked: dict[str, Any], words: str) -> None:
    """Which one, the asked and the allowed value; never long, and no line break in it."""
    usual = Grant(
        principals=("hg:site1:alice",),
        valid_after=NOW,
        valid_before=NOW + timedelta(hours=1),
        extensions=("permit-pty",),
    )
    with pytest.raises(CeilingError) as refused:
        check(CEILINGS, msgspec.structs.replace(usual, **asked), KEY_ID, now=NOW)
    assert str(refused.value).startswith(words)
    assert len(str(refused.value)) < 250
    assert str(refused.value).isprintable()

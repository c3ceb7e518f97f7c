"""Login by browser at the prompt: where it is offered, for how long, and what it believes."""

from pathlib import Path
from typing import Any, Self

import msgspec
import pytest

from headgate.clock import HeldClock
from headgate.identity import Identity
from headgate.problems import Unauthenticated, Unavailable
from token_translator.frontdoor.attempts import Attempts
from token_translator.frontdoor.devices import DeviceFlow, DeviceFlowSettings
from token_translator.frontdoor.dialogue import Dialogue
from token_translator.frontdoor.limits import LimitSettings

ISSUER = "https://issuer.example/"
ALICE = Identity(ISSUER, "alice")
STARTED = {
    "device_code": "secret",
    "user_code": "ABCD-EFGH",
    "verification_uri": f"{ISSUER}device",
    "expires_in": 1800,
    "interval": 5,
}


class Answer:
    """One answer of an issuer."""

    def __init__(self, status: int, document: Any) -> None:
        self.status = status
        self.url = "u"
        self.content = self
        self._body = msgspec.json.encode(document)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def iter_chunked(self, size: int) -> Any:
        """The body."""
        del size
        yield self._body


class Issuer:
    """Answers in turn, and notes what it was asked."""

    def __init__(self, *answers: tuple[int, Any], **metadata: str) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, dict[str, str]]] = []
        self._metadata = {
            "issuer": ISSUER,
            "device_authorization_endpoint": f"{ISSUER}devicecode",
            "token_endpoint": f"{ISSUER}token",
            **metadata,
        }

    def get(self, url: str, **_: Any) -> Answer:
        """Discovery."""
        del url
        return Answer(200, self._metadata)

    def post(self, url: str, *, data: dict[str, str], **_: Any) -> Answer:
        """The next answer."""
        self.asked.append((url, data))
        return Answer(*self._answers.pop(0))


def flow(issuer: Any, clock: Any = None, **changes: Any) -> DeviceFlow:
    """A device flow at that issuer."""
    settings = {"issuer": ISSUER, "client_id": "door", "networks": ("192.0.2.0/24",), **changes}
    return DeviceFlow(
        DeviceFlowSettings(**settings),
        secret="s",
        audience="ssh://door",
        session=issuer,
        clock=clock or HeldClock(),
    )


@pytest.mark.parametrize(
    ("address", "offered"),
    [
        ("192.0.2.7", True),
        ("::ffff:192.0.2.7", True),
        ("192.0.3.7", False),
        ("2001:db8::1", False),
        ("fe80::1%eth0", False),
    ],
)
def test_only_listed_networks(address: str, offered: bool):  # noqa: FBT001 - a parameter
    """A code is offered to the listed networks alone."""
    assert flow(Issuer()).offered_to(address) is offered


def test_codes_live_five_minutes_at_most():
    """More than 300 seconds cannot be set, nor no network at all."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(
            {"issuer": ISSUER, "client_id": "c", "networks": ["10.0.0.0/8"], "code_seconds": 301},
            DeviceFlowSettings,
        )
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"issuer": ISSUER, "client_id": "c", "networks": []}, DeviceFlowSettings)


async def test_issuers_longer_codes_are_cut_to_ours():
    """A code that its issuer would honour for half an hour is given up after five minutes."""
    pending = await flow(Issuer((200, STARTED))).begin()
    assert pending.until == 300
    assert "ABCD-EFGH" in pending.instruction


async def test_polls_at_the_issuers_pace():
    """Pending means to wait, `slow_down` to wait longer (RFC 8628, section 3.5)."""
    issuer = Issuer(
        (200, STARTED),
        (400, {"error": "authorization_pending"}),
        (400, {"error": "slow_down"}),
        (200, {"access_token": "token"}),
    )
    slept: list[float] = []

    class Clock(HeldClock):
        async def sleep(self, seconds: float) -> None:
            slept.append(seconds)

    one = flow(issuer, Clock())
    assert await one.token(await one.begin()) == "token"
    assert slept == [5, 10]
    assert issuer.asked[-1][1]["device_code"] == "secret"


@pytest.mark.parametrize("error", ["access_denied", "expired_token", "invalid_grant"])
async def test_refused_codes(error: str):
    """A code that was refused, has expired or is not known gives no token."""
    one = flow(Issuer((200, STARTED), (400, {"error": error})))
    pending = await one.begin()
    with pytest.raises(Unauthenticated):
        await one.token(pending)


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://evil.example/"},
        {"device_authorization_endpoint": "https://evil.example/devicecode"},
        {"token_endpoint": "http://issuer.example/token"},
    ],
)
async def test_our_secret_goes_to_the_issuer_alone(metadata: dict[str, str]):
    """An endpoint on another origin is not asked, whatever the discovery document says."""
    issuer = Issuer((200, STARTED), **metadata)
    with pytest.raises(Unavailable):
        await flow(issuer).begin()
    assert all(url.startswith(ISSUER) for url, _ in issuer.asked)


@pytest.mark.parametrize("change", [{"user_code": "A\x1b[2J"}, {"verification_uri": "https://\n"}])
async def test_what_would_steer_a_terminal_is_not_shown(change: dict[str, str]):
    """A code or an address with control characters in it is no offer."""
    with pytest.raises(Unavailable):
        await flow(Issuer((200, {**STARTED, **change}))).begin()


async def test_codes_for_one_address_are_counted(tmp_path: Path):
    """Connections from one address cannot make us ask the issuer for code after code."""
    attempts = Attempts(path=tmp_path / "s.db", limits=LimitSettings(), clock=HeldClock())
    issuer = Issuer(*[(200, STARTED)] * 20)
    for _ in range(20):
        dialogue = Dialogue(devices=flow(issuer), attempts=attempts, source="192.0.2.7")
        await dialogue.begin()
        await dialogue.begin()
    assert len(issuer.asked) == 6
    attempts.close()


async def test_parts_are_not_mistaken_for_the_browser(tmp_path: Path):
    """Enter after a part of 1023 ends the token, also where Enter alone means the browser."""
    attempts = Attempts(path=tmp_path / "s.db", limits=LimitSettings(), clock=HeldClock())
    issuer = Issuer((200, STARTED))
    dialogue = Dialogue(devices=flow(issuer), attempts=attempts, source="192.0.2.7")
    await dialogue.begin()
    assert not isinstance(await dialogue.take("a" * 1023), str)
    assert await dialogue.take("") == "a" * 1023
    assert not dialogue.by_browser
    attempts.close()


def test_new_addresses_are_told_of_once(tmp_path: Path):
    """A login by browser from a new address is told of once; from a known one it is not new."""
    attempts = Attempts(path=tmp_path / "s.db", limits=LimitSettings(), clock=HeldClock())
    assert attempts.logged_in_by_browser(ALICE, "192.0.2.7")
    assert not attempts.logged_in_by_browser(ALICE, "192.0.2.7")
    assert [source for source, _ in attempts.untold(ALICE)] == ["192.0.2.7"]
    assert attempts.untold(ALICE) == []
    attempts.close()

"""One connection's login, question by question: what a client that keeps no order can reach."""

import asyncio
from typing import Any

import asyncssh
import pytest
import structlog

from headgate.problems import Unauthenticated
from token_translator.frontdoor.limits import LimitSettings, Places
from token_translator.frontdoor.targets import Targets
from token_translator.frontdoor.visit import Visit


class Judge:
    """Admits nobody, in its own time."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.failures = 0
        self.asked = asyncio.Event()
        self.judged = asyncio.Event()
        self.judged.set()

    async def admit(self, token: str, place: object, *, drop: object) -> Any:
        """Refuse a token."""
        del place, drop
        self.tokens.append(token)
        self.asked.set()
        await self.judged.wait()
        raise Unauthenticated("No.")

    def failed(self, source: str) -> None:
        """Count."""
        del source
        self.failures += 1


class House:
    """As much of it as a login needs."""

    def __init__(self) -> None:
        self.admission = Judge()
        self.attempts = None
        self.banner = ""
        self.places = Places(LimitSettings())
        self.targets = Targets(())


@pytest.fixture
def house() -> House:
    """A house that admits nobody."""
    return House()


@pytest.fixture
def visit(house: Any) -> Visit:
    """A connection that is there."""
    place = house.places.take("192.0.2.1")
    assert place
    return Visit(house, place)


async def test_another_name_begins_anew(visit: Visit, house: House):
    """Parts that were given under one name are none of the token given under the next."""
    visit.begin_auth("alice")
    await visit.get_kbdint_challenge("alice", "", "")
    await visit.validate_kbdint_response("alice", ["a" * 1023])
    visit.begin_auth("bob")
    await visit.validate_kbdint_response("bob", ["b"])
    assert house.admission.tokens == ["b"]


async def test_another_method_begins_anew(visit: Visit, house: House):
    """A new challenge forgets the parts of one that was left unfinished."""
    visit.begin_auth("alice")
    await visit.get_kbdint_challenge("alice", "", "")
    await visit.validate_kbdint_response("alice", ["a" * 1023])
    await visit.validate_password("alice", "p")
    await visit.get_kbdint_challenge("alice", "", "")
    await visit.validate_kbdint_response("alice", ["b"])
    assert house.admission.tokens == ["p", "b"]


async def test_two_answers_at_once_end_the_connection(visit: Visit, house: House):
    """Whoever answers again before the first answer was judged is no client: it ends."""
    house.admission.judged.clear()
    first = asyncio.create_task(visit.validate_password("alice", "a"))
    await house.admission.asked.wait()
    with pytest.raises(asyncssh.DisconnectError):
        await visit.validate_password("alice", "b")
    house.admission.judged.set()
    assert not await first
    assert house.admission.tokens == ["a"]


@pytest.mark.parametrize("responses", [[], ["a", "b"]])
async def test_one_prompt_has_one_answer(visit: Visit, responses: list[str]):
    """More or fewer answers than prompts end the connection."""
    visit.begin_auth("alice")
    with pytest.raises(asyncssh.DisconnectError):
        await visit.validate_kbdint_response("alice", responses)


def test_names_run_out(visit: Visit):
    """After six names the connection ends: nobody tries out who is here."""
    for name in "abcdef":
        assert visit.begin_auth(name)
    with pytest.raises(asyncssh.DisconnectError):
        visit.begin_auth("g")


async def test_attempts_run_out_and_count(visit: Visit, house: House):
    """The sixth answer that is no token ends the connection; each counts against the address."""
    for _ in range(5):
        assert not await visit.validate_password("alice", "x")
    with pytest.raises(asyncssh.DisconnectError, match=r"No\."):
        await visit.validate_password("alice", "x")
    assert house.admission.failures == 6


async def give_up(visit: Visit, house: House) -> None:
    """Answer, and be gone before the answer was judged."""
    house.admission.asked.clear()
    answering = asyncio.create_task(visit.validate_password("alice", "x"))
    await house.admission.asked.wait()
    answering.cancel()
    await asyncio.wait([answering])
    assert answering.cancelled()


async def test_an_answer_given_up_counts(visit: Visit, house: House):
    """Whoever asks for something else before a token was judged has had that attempt."""
    house.admission.judged.clear()
    for given_up in range(1, 7):
        await give_up(visit, house)
        assert house.admission.failures == given_up
    with pytest.raises(asyncssh.DisconnectError):
        await visit.validate_password("alice", "x")
    assert len(house.admission.tokens) == 6


def test_refusals_are_logged_once(visit: Visit):
    """However often something is asked for that there is not: two words in the log."""
    with structlog.testing.capture_logs() as logged:
        for port in range(100):
            visit.server_requested("::", port)
            with pytest.raises(asyncssh.ChannelOpenError):
                visit.connection_requested("elsewhere.example", port, "::1", 1)
        visit.connection_lost(None)
    assert [line["event"] for line in logged] == [
        "listening_refused",
        "target_refused",
        "refused_in_all",
    ]
    assert (logged[2]["listening_refused"], logged[2]["target_refused"]) == (100, 100)


def test_a_single_refusal_is_not_summed_up(visit: Visit):
    """What was said once needs no sum."""
    with structlog.testing.capture_logs() as logged:
        visit.server_requested("::", 1)
        visit.connection_lost(None)
    assert [line["event"] for line in logged] == ["listening_refused"]


async def test_nothing_is_offered_before_the_login(visit: Visit):
    """Without a login there are no sessions and no jumps."""
    with pytest.raises(asyncssh.ChannelOpenError):
        visit.session_requested()

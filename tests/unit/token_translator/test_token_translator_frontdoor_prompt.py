"""A token in parts: what a stock client cuts, and what it may not do to us."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from token_translator.frontdoor.prompt import CUT, MAX_TOKEN_BYTES, Complete, More, TokenPrompt


def asked(prompt: TokenPrompt, *answers: str) -> list[str]:
    """What each answer led to: the next prompt, the token, or a refusal."""
    said = []
    for answer in answers:
        verdict = prompt.take(answer)
        match verdict:
            case More():
                said.append(verdict.prompt)
            case Complete():
                said.append(f"token {verdict.token}")
            case _:
                said.append("refused")
    return said


def stock_client(token: str) -> list[str]:
    """The answers of somebody who gives a token in parts of 1023, and Enter at the end."""
    return [token[at : at + CUT] for at in range(0, len(token), CUT)] + [""]


@given(st.integers(1, MAX_TOKEN_BYTES))
def test_any_length_arrives_whole(length: int):
    """A token of any length up to the limit arrives as it is, however many parts it takes."""
    token = ("abcdefghij" * (length // 10 + 1))[:length]
    prompt = TokenPrompt()
    answers = iter(stock_client(token))
    verdict = prompt.take(next(answers))
    while isinstance(verdict, More):
        verdict = prompt.take(next(answers))
    assert verdict == Complete(token)


def test_prompts_are_numbered():
    """Each further prompt says which part it asks for, so that a helper can feed it."""
    said = asked(TokenPrompt(), "a" * CUT, "b" * CUT, "c")
    assert said[:2] == ["Access token (part 2): ", "Access token (part 3): "]
    assert said[2] == "token " + "a" * CUT + "b" * CUT + "c"


def test_exactly_1023_is_asked_on_and_ended_by_enter():
    """An answer of 1023 bytes may have been cut: an empty one after it says that it was not."""
    assert asked(TokenPrompt(), "a" * CUT, "") == ["Access token (part 2): ", "token " + "a" * CUT]


def test_1022_is_the_whole_token():
    """A shorter answer was not cut."""
    assert asked(TokenPrompt(), "a" * 1022) == ["token " + "a" * 1022]


def test_1024_of_a_client_that_does_not_cut_is_the_whole_token():
    """No stock client sends more than 1023 bytes: whoever does, sends all."""
    assert asked(TokenPrompt(), "a" * 4000) == ["token " + "a" * 4000]


def test_1024_through_askpass_arrives_empty_and_is_explained():
    """OpenSSH drops an answer of 1024 bytes from SSH_ASKPASS: the refusal says how to split."""
    verdict = TokenPrompt().take("")
    assert "1023" in getattr(verdict, "reason", "")


@pytest.mark.parametrize("pasted", ["abc\n", "abc\r\n", " abc ", "a\nbc", "abc\n\n"])
def test_pasted_newline_is_no_part_of_the_token(pasted: str):
    """Blanks and line ends that come with a paste are dropped: no token has any."""
    assert asked(TokenPrompt(), pasted) == ["token abc"]


def test_never_ending_parts_end():
    """Whoever answers every prompt with more is refused at 16 KiB, after 17 answers."""
    prompt = TokenPrompt()
    said = asked(prompt, *["a" * CUT] * 17)
    assert said[-1] == "refused"
    assert said[:-1] == [f"Access token (part {part}): " for part in range(2, 18)]


@pytest.mark.parametrize("answer", ["a\0b", "tökén", "\x1b[31mabc", "a" * (MAX_TOKEN_BYTES + 1)])
def test_what_no_token_has_is_refused(answer: str):
    """Control characters, other alphabets and endless answers are refused before they are used."""
    assert asked(TokenPrompt(), answer) == ["refused"]


def test_bytes_count_and_not_characters():
    """The client cuts bytes: an answer of 1023 of them is a part, whatever they spell."""
    assert isinstance(TokenPrompt().take("é" * 511 + "a"), More)

"""A token asked at a prompt, in as many parts as a client needs.

OpenSSH's client reads an answer into 1024 bytes and drops what is beyond (readpassphrase(3), as
its `read_passphrase` calls it): an answer of exactly 1023 bytes may have been cut, and nothing in
it says so. A client that sends more does not cut.
"""

from dataclasses import dataclass

CUT = 1023
"""Bytes that a stock client sends of a longer answer."""
MAX_TOKEN_BYTES = 16 * 1024
FIRST = "Access token: "


@dataclass(frozen=True, slots=True)
class More:
    """There is more to come: ask with this prompt."""

    prompt: str


@dataclass(frozen=True, slots=True)
class Complete:
    """The whole token."""

    token: str


@dataclass(frozen=True, slots=True)
class Refused:
    """This will never be a token; the sentence is for the person."""

    reason: str


Verdict = More | Complete | Refused


class TokenPrompt:
    """Puts one token together from the answers to one login's prompts.

    An answer of 1023 bytes is taken for a part; the next, if it is empty, says that there was no
    more. So the longest token needs 17 answers, and nobody gets to give an eighteenth.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size = 0

    def take(self, answer: str) -> Verdict:
        """What follows of one more answer."""
        size = len(answer.encode())
        self._size += size
        if self._size > MAX_TOKEN_BYTES:
            return Refused(f"The token is longer than {MAX_TOKEN_BYTES} bytes.")
        self._parts.append(answer)
        if size == CUT:
            return More(f"Access token (part {len(self._parts) + 1}): ")
        return _whole("".join(self._parts))


def _whole(text: str) -> Complete | Refused:
    # A pasted token often brings the end of its line along; one that was wrapped, more of them.
    token = "".join(text.split())
    if not token:
        return Refused(
            "The answer was empty. (A stock ssh drops an answer of 1024 bytes: give the token in "
            f"parts of {CUT}.)"
        )
    if not token.isascii() or not token.isprintable():
        return Refused("This is not a token: it has characters that no token has.")
    return Complete(token)

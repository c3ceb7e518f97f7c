"""What is asked at the prompt: the token in parts or, where it is offered, a login by browser."""

import structlog

from headgate.problems import Unauthenticated, Unavailable
from token_translator.frontdoor.attempts import Attempts
from token_translator.frontdoor.devices import DeviceFlow, Pending
from token_translator.frontdoor.prompt import FIRST, More, Refused, TokenPrompt

log = structlog.get_logger(__name__)

OR_BROWSER = "Access token, or Enter once you have logged in by browser: "

Challenge = tuple[str, str, str, list[tuple[str, bool]]]
"""Name, instruction, language, and prompts with whether the answer may be seen (RFC 4256)."""


class Dialogue:
    """The prompts of one connection; `devices` is None where there is no login by browser."""

    def __init__(self, *, devices: DeviceFlow | None, attempts: Attempts, source: str) -> None:
        self._devices = devices
        self._attempts = attempts
        self._source = source
        self._prompt = TokenPrompt()
        self._pending: Pending | None = None
        self._begun = False
        self.by_browser = False

    def forget(self) -> None:
        """Drop the parts given so far."""
        self._prompt = TokenPrompt()
        self._begun = False

    async def begin(self) -> Challenge:
        """The first question."""
        self.forget()
        await self._offer_browser()
        if self._pending is None:
            return "", "", "", [(FIRST, False)]
        return "", self._pending.instruction, "", [(OR_BROWSER, False)]

    async def take(self, answer: str) -> Challenge | str:
        """The next question, or the token.

        Raises:
            Unauthenticated: this is no token, or nobody logged in by browser.
            Unavailable: the issuer does not say whether somebody did.
        """
        if self._devices and self._pending and not self._begun and not answer.strip():
            pending, self._pending = self._pending, None
            token = await self._devices.token(pending)
            self.by_browser = True
            return token
        verdict = self._prompt.take(answer)
        if isinstance(verdict, More):
            self._begun = True
            return "", "", "", [(verdict.prompt, False)]
        self.forget()
        if isinstance(verdict, Refused):
            raise Unauthenticated(verdict.reason)
        self.by_browser = False
        return verdict.token

    async def _offer_browser(self) -> None:
        """Have a code to show, if there may be one; the same one for all attempts."""
        if self._devices is None or self._pending is not None:
            return
        if not self._attempts.device_code(self._source):
            return
        try:
            self._pending = await self._devices.begin()
        except Unavailable as problem:
            log.info("no_device_code", reason=problem.detail)

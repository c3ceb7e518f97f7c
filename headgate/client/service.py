"""One service of a site over HTTP: its address, its token, its connections, its deadlines."""

import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

import aiohttp
import msgspec
from yarl import URL

from headgate import __version__
from headgate.client.errors import UnexpectedAnswerError
from headgate.client.retry import Retrying, RetryPolicy
from headgate.client.tokens import TokenCallback, TokenHolder
from headgate.client.transport import Answer, Request, StepUp, Transport, is_private
from headgate.clock import Clock, SystemClock

T = TypeVar("T")


class ServiceClient:
    """What the clients of all services share; an asynchronous context manager."""

    def __init__(
        self,
        url: str,
        *,
        token: str | TokenCallback | None = None,
        policy: RetryPolicy | None = None,
        insecure: bool = False,
        on_retry: Callable[[Retrying], None] | None = None,
        on_step_up: StepUp | None = None,
        session: aiohttp.ClientSession | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Name a service; nothing is sent yet.

        Args:
            url: the service's address, without `/v1`.
            token: an access token, or a function that gives one (see `TokenCallback`).
            policy: deadlines and pauses; None is 60 s in all.
            insecure: allow a token to travel over plain HTTP to another machine.
            on_retry: told before each repetition.
            on_step_up: told when the service wants a stronger login; true: there is one now, and
                the token callback gives its token.
            session: an aiohttp session to use; it stays the caller's to close.
            clock: the source of time.

        Raises:
            ValueError: the address is no HTTP URL, or plain HTTP without `insecure`.
        """
        self._base = _base_url(url)
        if token is not None and not insecure and not is_private(self._base):
            raise ValueError(
                f"{url} is not HTTPS: anybody on the way could read the token. "
                "Use https, or insecure=True if you know the network."
            )
        self._tokens = TokenHolder(token)
        self._policy = policy or RetryPolicy()
        self._on_retry = on_retry or (lambda _: None)
        self._on_step_up = on_step_up
        self._clock: Clock = clock or SystemClock()
        self._given_session = session
        self._transport: Transport | None = None
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Open the connection pool, unless a session was given."""
        session = self._given_session
        if session is None:
            session = await self._stack.enter_async_context(
                aiohttp.ClientSession(headers={"User-Agent": f"headgate/{__version__}"})
            )
        self._transport = Transport(
            self._base,
            session=session,
            tokens=self._tokens,
            policy=self._policy,
            clock=self._clock,
            on_retry=self._on_retry,
            on_step_up=self._on_step_up,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close what was opened."""
        self._transport = None
        await self._stack.aclose()

    async def _send(self, request: Request, *, deadline: float | None = None) -> Answer:
        if self._transport is None:
            raise RuntimeError("The client is not open: use it with `async with`.")
        return await self._transport.send(request, deadline=deadline)


def _base_url(url: str) -> URL:
    base = URL(url)
    if base.scheme not in {"http", "https"} or not base.host or base.user or base.query_string:
        raise ValueError(f"{url!r} is not the address of a service; it looks like https://host.")
    return base


def decode(answer: Answer, kind: type[T], service: str = "gateway") -> T:
    """The answer's JSON as a value.

    Raises:
        UnexpectedAnswerError: it is not one of that service.
    """
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnexpectedAnswerError(
            f"The answer is not one of a headgate {service} ({error}); is the address right?"
        ) from error

"""One HTTP request made to succeed if it can: token, retries, one deadline, bounded answers."""

import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from ipaddress import ip_address

import aiohttp
import msgspec
from yarl import URL

from headgate.client.challenge import step_up
from headgate.client.errors import (
    HeadgateError,
    ProblemDetails,
    StepUpError,
    UnexpectedAnswerError,
    UnreachableError,
    problem_error,
)
from headgate.client.retry import Retrying, RetryPolicy, retry_after
from headgate.client.tokens import TokenHolder
from headgate.clock import Clock

MAX_ANSWER_BYTES = 32 * 1024 * 1024
CONNECT_SECONDS = 10.0

StepUp = Callable[[StepUpError], Awaitable[bool]]
"""Called when a service wants a stronger login; true: there is one now."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request of the interface. Every one of ours may be repeated: a POST carries its key."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    anonymous: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """A response below 400, read whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _TryAgain(Exception):  # noqa: N818 - never leaves this module
    """An attempt failed in a way that another one may not; `wish` is the server's Retry-After."""

    def __init__(self, failure: HeadgateError, wish: float | None = None) -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.wish = wish


class Transport:
    """Sends requests to one gateway.

    Sent again: when no answer came, after 429, 502, 503 and 504, after any problem that says
    `retryable`, and once with a new token after 401. The server's `Retry-After` is kept; a call
    that would outlive its deadline fails at once with the last reason.
    """

    def __init__(
        self,
        base: URL,
        *,
        session: aiohttp.ClientSession,
        tokens: TokenHolder,
        policy: RetryPolicy,
        clock: Clock,
        on_retry: Callable[[Retrying], None],
        on_step_up: StepUp | None = None,
    ) -> None:
        self._base = base
        self._session = session
        self._tokens = tokens
        self._policy = policy
        self._clock = clock
        self._on_retry = on_retry
        self._on_step_up = on_step_up

    async def send(self, request: Request, *, deadline: float | None = None) -> Answer:
        """The answer to a request, within `deadline` seconds (None: the policy's).

        Raises:
            ProblemError: the server refused, for good or for longer than the deadline.
            UnreachableError: no answer came. UnexpectedAnswerError: one that makes no sense.
        """
        ends = self._clock.monotonic() + (self._policy.deadline if deadline is None else deadline)
        failures = 0
        while True:
            left = max(ends - self._clock.monotonic(), 1.0)
            try:
                return await self._attempt(request, left)
            except _TryAgain as again:
                failures += 1
                pause = again.wish if again.wish is not None else self._policy.pause(failures)
                if self._clock.monotonic() + pause >= ends:
                    raise again.failure from again.__cause__
                self._on_retry(Retrying(failures, str(again.failure), pause))
            await self._clock.sleep(pause)

    async def _attempt(self, request: Request, left: float) -> Answer:
        token = "" if request.anonymous else await self._tokens.current()
        answer = await self._once(request, token, left)
        if answer.status == HTTPStatus.UNAUTHORIZED and token and await self._better(answer, token):
            answer = await self._once(request, await self._tokens.current(), left)
        if answer.status < HTTPStatus.BAD_REQUEST:
            self._no_redirect(answer)
            return answer
        if stronger := _step_up(answer):
            raise stronger
        problem = _problem(answer)
        wish = retry_after(answer.headers, self._clock.now())
        failure = problem_error(problem, wish)
        if problem.retryable or ProblemDetails.without_document(answer.status).retryable:
            raise _TryAgain(failure, wish)
        raise failure

    async def _better(self, answer: Answer, refused: str) -> bool:
        """Whether there is another token to try once, after this refusal."""
        stronger = _step_up(answer)
        # Another token of the same login would be no stronger.
        if stronger and not (self._on_step_up and await self._on_step_up(stronger)):
            return False
        return await self._tokens.renew(refused)

    async def _once(self, request: Request, token: str, left: float) -> Answer:
        headers = dict(request.headers)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        url = URL(str(self._base).rstrip("/") + request.path, encoded=True)
        try:
            async with self._session.request(
                request.method,
                url.with_query(dict(request.query)) if request.query else url,
                headers=headers,
                data=request.body,
                # A redirect would carry the token to a place nobody named.
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(
                    total=min(self._policy.attempt, left), sock_connect=CONNECT_SECONDS
                ),
            ) as response:
                return Answer(response.status, response.headers, await _read(response))
        except (aiohttp.ClientSSLError, ssl.SSLError) as error:
            reason = getattr(error, "certificate_error", error)
            raise UnreachableError(
                f"{self._base.origin()} cannot be trusted: TLS failed ({reason})."
            ) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _TryAgain(
                UnreachableError(f"{self._base.origin()} does not answer: {_why(error)}.")
            ) from error

    def _no_redirect(self, answer: Answer) -> None:
        if answer.status < HTTPStatus.MULTIPLE_CHOICES or answer.status == HTTPStatus.NOT_MODIFIED:
            return
        raise UnexpectedAnswerError(
            f"{self._base} redirects to {answer.headers.get('Location', 'nowhere')}; "
            "if that is the gateway, use that address."
        )


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(65536):
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            raise UnexpectedAnswerError(f"An answer of more than {MAX_ANSWER_BYTES} bytes came.")
    return bytes(body)


def _step_up(answer: Answer) -> StepUpError | None:
    if answer.status != HTTPStatus.UNAUTHORIZED or (wanted := step_up(answer.headers)) is None:
        return None
    return StepUpError(_problem(answer), acr_values=wanted[0], max_age=wanted[1])


def _problem(answer: Answer) -> ProblemDetails:
    if "json" in answer.headers.get("Content-Type", ""):
        try:
            document = msgspec.json.decode(answer.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            document = None
        if isinstance(document, dict):
            return ProblemDetails.of_document(answer.status, document)
    return ProblemDetails.without_document(answer.status)


def _why(error: BaseException) -> str:
    """Why there was no answer, in words; aiohttp's own messages repeat the address."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "there is no host of that name"
    if isinstance(error, TimeoutError):
        return "it took too long"
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.strerror:
        return _without_address(error.os_error)
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "it closed the connection"
    return str(error) or type(error).__name__


def _without_address(error: OSError) -> str:
    words = error.strerror or str(error)
    # asyncio puts the address into strerror: "Connect call failed ('127.0.0.1', 1)".
    return "the connection was refused" if "Connect call failed" in words else words


def is_private(url: URL) -> bool:
    """Whether nobody can listen on the way to `url`: TLS, or this machine itself."""
    if url.scheme == "https" or url.host == "localhost":
        return True
    try:
        return ip_address(url.host or "").is_loopback
    except ValueError:
        return False

"""One question on a user's session: a lost session is replaced once, failures are problems."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from gateway.sessions.credentials import Certify
from gateway.sessions.pool import SessionPool
from gateway.sessions.session import SessionDenied, SessionLost, SessionUnavailable, UserSession
from gateway.sessions.user import User
from headgate.problems import Forbidden, Unavailable

T = TypeVar("T")


async def ask(
    pool: SessionPool,
    user: User,
    certify: Certify,
    question: Callable[[UserSession], Awaitable[T]],
    *,
    again: bool = True,
) -> T:
    """The answer; `again`: the question may be asked twice.

    Raises:
        SessionRefused: the session program's answer, for the caller to put into words.
        Forbidden: the user may not act. Unavailable: the login node is away.
    """
    for last in (not again, True):
        try:
            async with pool.with_token(user, certify) as session:
                return await question(session)
        except SessionDenied as error:
            raise Forbidden(f"This is not possible now: {error}.", code="suspended") from error
        except SessionUnavailable as error:
            raise Unavailable("The login node does not answer.", retry_after=5) from error
        except SessionLost as error:
            if last:
                raise Unavailable("The login node does not answer.", retry_after=5) from error
    raise AssertionError("the last try returns or raises")

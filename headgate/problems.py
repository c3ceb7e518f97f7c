"""What a caller can act on: RFC 9457 problems with a stable code, rendered in one place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, ClassVar

TYPE_BASE = "https://headgate.invalid/problems/"
"""Prefix of every problem `type`; the documentation explains each code under it."""

STEP_UP = "insufficient_user_authentication"
"""The code of a refusal that another, stronger or fresher login would lift (RFC 9470)."""

MAX_FAULTS = 100
"""Faults told of one body: what is wrong a hundred thousand times is not said so often."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong in a request body: a JSON pointer (RFC 6901) and a sentence."""

    pointer: str
    detail: str


@dataclass(eq=False)
class Problem(Exception):  # noqa: N818 - the word of RFC 9457
    """A failure the caller can act on. Raise a subclass; one middleware renders them all.

    `detail` is for the caller: what was wrong, where and what to do. Causes go to the log, by
    `raise … from`. `code` is stable, `members` are extension members (RFC 9457, section 3.2).
    """

    detail: str
    code: str = ""
    faults: Sequence[Fault] = ()
    retry_after: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    members: dict[str, Any] = field(default_factory=dict)

    status: ClassVar[HTTPStatus] = HTTPStatus.INTERNAL_SERVER_ERROR
    default_code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Make `str(problem)` the caller's sentence."""
        super().__init__(self.detail)

    @property
    def stable_code(self) -> str:
        """The code of this problem, else the one of its class."""
        return self.code or self.default_code

    def document(self, request_id: str = "") -> dict[str, Any]:
        """The problem as the JSON object of RFC 9457."""
        document: dict[str, Any] = {
            "type": TYPE_BASE + self.stable_code,
            "title": self.status.phrase,
            "status": self.status.value,
            "detail": self.detail,
            "code": self.stable_code,
            "retryable": self.retryable,
            **self.members,
        }
        if self.faults:
            document["errors"] = [
                {"pointer": fault.pointer, "detail": fault.detail}
                for fault in self.faults[:MAX_FAULTS]
            ]
        if request_id:
            document["request_id"] = request_id
        return document

    def response_headers(self) -> dict[str, str]:
        """Headers that belong to this problem, `Retry-After` (seconds) included."""
        if self.retry_after is None:
            return self.headers
        return {**self.headers, "Retry-After": str(self.retry_after)}


class Internal(Problem):
    """A bug of ours: the caller learns nothing but the request id."""


class Invalid(Problem):
    """The request is not what the interface asks for."""

    status = HTTPStatus.BAD_REQUEST
    default_code = "invalid_request"


class Unauthenticated(Problem):
    """There is no usable token (RFC 6750, section 3.1)."""

    status = HTTPStatus.UNAUTHORIZED
    default_code = "invalid_token"


class Forbidden(Problem):
    """The caller is known and may not do this."""

    status = HTTPStatus.FORBIDDEN
    default_code = "forbidden"


class NotFound(Problem):
    """There is no such thing, or the caller may not know of it."""

    status = HTTPStatus.NOT_FOUND
    default_code = "not_found"


class Conflict(Problem):
    """The request contradicts what is there already."""

    status = HTTPStatus.CONFLICT
    default_code = "conflict"


class TooSlow(Problem):
    """The body did not come in time."""

    status = HTTPStatus.REQUEST_TIMEOUT
    default_code = "too_slow"
    retryable = True


class TooLarge(Problem):
    """The body is larger than this interface reads."""

    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    default_code = "too_large"


class Unprocessable(Problem):
    """The request is well-formed, and this site cannot fulfil it."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY
    default_code = "unprocessable"


class TooMany(Problem):
    """The caller asks too often; `retry_after` says when to come back."""

    status = HTTPStatus.TOO_MANY_REQUESTS
    default_code = "too_many_requests"
    retryable = True


class Unavailable(Problem):
    """Something this service depends on is away; `retry_after` says when to come back."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    default_code = "unavailable"
    retryable = True


def stronger_login(
    detail: str,
    *,
    acr_values: Sequence[str] = (),
    max_age: int | None = None,
    members: Mapping[str, Any] | None = None,
) -> Unauthenticated:
    """The challenge of RFC 9470, section 3: which login would do; `max_age` in seconds."""
    challenge = [
        'Bearer error="insufficient_user_authentication"',
        'error_description="A different or a more recent login is needed"',
    ]
    wanted: dict[str, Any] = {}
    if acr_values:
        challenge.append(f'acr_values="{" ".join(acr_values)}"')
        wanted["acr_values"] = list(acr_values)
    if max_age is not None:
        challenge.append(f'max_age="{max_age}"')
        wanted["max_age"] = max_age
    return Unauthenticated(
        detail,
        code=STEP_UP,
        headers={"WWW-Authenticate": ", ".join(challenge)},
        members={**wanted, **(members or {})},
    )

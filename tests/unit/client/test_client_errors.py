"""From HTTP statuses and problem documents to exceptions."""

import pytest

from headgate.client import (
    AuthenticationError,
    Fault,
    ForbiddenError,
    ProblemDetails,
    ProblemError,
    RequestProblemError,
    ServerProblemError,
    TooManyRequestsError,
    UnavailableError,
)
from headgate.client.errors import problem_error


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, AuthenticationError),
        (403, ForbiddenError),
        (418, RequestProblemError),
        (429, TooManyRequestsError),
        (500, ServerProblemError),
        (502, UnavailableError),
        (503, UnavailableError),
        (504, UnavailableError),
    ],
)
def test_each_status_has_its_exception(status: int, kind: type[ProblemError]):
    """The exception's class follows the status, unknown ones their hundred."""
    assert type(problem_error(ProblemDetails.without_document(status))) is kind


def test_a_document_reads_and_writes_alike():
    """Known members are fields, extension members are kept, and all of it is a document again."""
    document = {
        "type": "https://headgate.invalid/problems/account_pending",
        "title": "Forbidden",
        "status": 403,
        "detail": "Your account waits.",
        "code": "account_pending",
        "retryable": False,
        "request_id": "abc",
        "errors": [{"pointer": "/a", "detail": "No."}],
        "waiting_for": "the administrators",
    }
    problem = ProblemDetails.of_document(403, document)
    assert problem.errors == (Fault("/a", "No."),)
    assert problem.members == {"waiting_for": "the administrators"}
    assert problem.document() == document


def test_a_malformed_document_is_still_a_sentence():
    """Members of a wrong type count as absent."""
    problem = ProblemDetails.of_document(
        500, {"detail": 7, "errors": ["x", {"pointer": 1}], "retryable": "yes", "code": None}
    )
    assert problem.detail == "The server answered: Internal Server Error."
    assert problem.errors == (Fault("", ""),)
    assert not problem.retryable


def test_the_text_of_an_exception_is_the_detail():
    """What a user reads is the service's own sentence."""
    problem = ProblemDetails.of_document(400, {"detail": "The body is not JSON."})
    assert str(problem_error(problem)) == "The body is not JSON."

"""What a refusal asks of the next login (RFC 9470), as services and proxies write it."""

import pytest

from headgate.client.challenge import step_up
from headgate.problems import stronger_login

WANTED = "insufficient_user_authentication"


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        (f'Bearer error="{WANTED}", acr_values="a b", max_age="5"', (("a", "b"), 5)),
        (f'bearer error="{WANTED}",acr_values="a"', (("a",), None)),
        (f"Bearer error={WANTED}, max_age=0", ((), 0)),
        (f'Bearer realm="x, y=\\"z\\"", error="{WANTED}"', ((), None)),
        (f'Bearer error="{WANTED}", max_age="soon"', ((), None)),
        (f'Bearer error="{WANTED}", max_age="{"9" * 5000}"', ((), None)),
        (f'Bearer error="{WANTED}", max_age="٣"', ((), None)),
        ('Bearer error="invalid_token"', None),
        (f'Bearer error_description="{WANTED}", error="invalid_token"', None),
        (f'Basic error="{WANTED}"', None),
        ("Bearer", None),
        ("", None),
    ],
)
def test_a_challenge_is_read(header: str, wanted: tuple[tuple[str, ...], int | None] | None):
    """Quoted or not, in any order; anything else asks for nothing."""
    assert step_up({"WWW-Authenticate": header}) == wanted


def test_no_challenge_is_none():
    """A refusal without the header asks for nothing."""
    assert step_up({}) is None


def test_our_services_challenge_is_read():
    """What our own services send says here what it said there."""
    problem = stronger_login("More is needed.", acr_values=("a", "b"), max_age=60)
    assert step_up(problem.headers) == (("a", "b"), 60)

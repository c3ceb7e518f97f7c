"""Pauses and Retry-After, as pure rules."""

import random
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.client import RetryPolicy
from headgate.client.retry import retry_after

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@given(st.integers(1, 10_000), st.integers())
def test_pauses_grow_to_a_bound(failures: int, seed: int):
    """Every pause is within the upper half of its doubled step, and never above the longest."""
    chance = random.Random(seed)  # noqa: S311 - not about secrets
    policy = RetryPolicy(first_pause=0.5, longest_pause=8.0, chance=chance)
    full = min(8.0, 0.5 * 2.0 ** min(failures - 1, 32))
    assert full / 2 <= policy.pause(failures) <= full


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        ("Thu, 01 Jan 2026 12:00:30 GMT", 30.0),
        ("Thu, 01 Jan 2026 11:00:00 GMT", 0.0),
        ("99999999999", 86400.0),
        ("soon", None),
        ("-5", None),
        ("", None),
    ],
)
def test_retry_after_has_two_forms(value: str, seconds: float | None):
    """Seconds or an HTTP date; what is neither is ignored."""
    assert retry_after({"Retry-After": value}, NOW) == seconds

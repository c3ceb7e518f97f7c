"""What every test gets: a fresh set-up of logging, whatever a command under test did to it."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def fresh_logging() -> Iterator[None]:
    """Undo `logs.configure` of commands under test: it writes to a stream that is theirs."""
    yield
    structlog.reset_defaults()

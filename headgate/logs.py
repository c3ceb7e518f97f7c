"""Structured logs on standard error: key=value for a person at a terminal, JSON lines otherwise."""

import logging
import sys

import structlog


def configure(level: str = "info", *, json: bool | None = None) -> None:
    """Set up logging for a process; called by composition roots only.

    `json=None` decides by whether standard error is a terminal. The request id and job id that a
    task binds with `structlog.contextvars` are on each of its lines.
    """
    as_json = not sys.stderr.isatty() if json is None else json
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer()
    )
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(level=max(number, logging.WARNING), stream=sys.stderr, force=True)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            *(() if as_json else (_printable,)),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


def _printable(
    _: structlog.typing.WrappedLogger, __: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """What callers wrote, without what could steer a terminal (JSON escapes it by itself)."""
    return {name: _escaped(value) for name, value in event.items()}


def _escaped(value: object) -> object:
    if not isinstance(value, str) or value.isprintable():
        return value
    return value.encode("unicode_escape").decode("ascii")

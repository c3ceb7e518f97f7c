"""Amounts as people type them: wall times, memory, environment variables."""

import re
from collections.abc import Mapping
from typing import NoReturn

import click

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_BYTES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_FIELDS = (1, 60, 3600)


def seconds(text: str) -> int:
    """A wall time in seconds: `90`, `10m`, `1h30m`, `2d`, or Slurm's `H:MM:SS` and `D-HH:MM:SS`.

    Raises:
        ValueError: it is none of these, or zero.
    """
    days, dash, clock = text.strip().lower().rpartition("-")
    if ":" in clock:
        fields = clock.split(":")
        if not (all(f.isascii() and f.isdigit() for f in fields) and len(fields) <= len(_FIELDS)):
            raise ValueError(text)
        if len(fields) < len(_FIELDS):
            # Slurm reads M:S, people mean H:M: neither guess is safe.
            raise ValueError(text)
        total = sum(int(f) * unit for f, unit in zip(reversed(fields), _FIELDS, strict=True))
        total += int(days) * _SECONDS["d"] if dash else 0
    else:
        parts = re.fullmatch(r"(?:[0-9]+[smhd])*(?:[0-9]+)?", clock)
        if dash or not parts:
            raise ValueError(text)
        total = sum(int(n) * _SECONDS[unit] for n, unit in re.findall(r"([0-9]+)([smhd]?)", clock))
    if total <= 0:
        raise ValueError(text)
    return total


def memory_bytes(text: str) -> int:
    """An amount of memory in bytes: `4G`, `512M`, `1.5GiB`; units are powers of 1024.

    Raises:
        ValueError: it is none of these, or less than a byte.
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    if not match or (amount := int(float(match[1]) * _BYTES[match[2]])) <= 0:
        raise ValueError(text)
    return amount


class WallTime(click.ParamType[int]):
    """A click parameter in seconds."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Parse, or tell what a wall time looks like."""
        try:
            return seconds(str(value))
        except ValueError:
            self._refuse(value, param, ctx)

    def _refuse(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> NoReturn:
        self.fail(f"{value!r} is no wall time; write 90s, 10m, 1h30m, 2d or 0:10:00.", param, ctx)


class Memory(click.ParamType[int]):
    """A click parameter in bytes."""

    name = "size"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Parse, or tell what an amount of memory looks like."""
        try:
            return memory_bytes(str(value))
        except ValueError:
            self.fail(f"{value!r} is no amount of memory; write 512M, 4G or 1.5G.", param, ctx)


def variables(settings: tuple[str, ...], environ: Mapping[str, str]) -> dict[str, str]:
    """`K=V` settings as a mapping; a bare `K` takes its value from the caller's environment.

    Raises:
        click.BadParameter: no name, or a bare name that is not set.
    """
    result = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not name or (not equals and name not in environ):
            raise click.BadParameter(
                f"{setting!r}: write NAME=VALUE, or the NAME of a variable that is set here.",
                param_hint="--env",
            )
        result[name] = value if equals else environ[name]
    return result

"""Settings: one TOML file per service into a frozen value, or one readable error."""

import os
import tomllib
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")

EX_CONFIG = 78
"""Exit status of a command whose settings are wrong (sysexits.h)."""


class SettingsError(Exception):
    """The settings cannot be used; the message names the file, the place and what was expected."""


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of a settings file: immutable, and a misspelt key is an error."""


def load(path: Path, kind: type[T]) -> T:
    """Read a TOML file as `kind`, a `Section`.

    Raises:
        SettingsError: unreadable, not TOML, an unknown or missing key, a value of another type.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: not TOML: {error}") from error
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{path}: {error}") from error


def show(settings: Section) -> str:
    """What was understood, as JSON lines a person can compare with the file; secrets are paths."""
    return msgspec.json.format(msgspec.json.encode(settings, order="deterministic")).decode()


def read_secret(path: Path) -> bytes:
    """A secret from its own file, without the final newline.

    Raises:
        SettingsError: unreadable, empty, or open to others than its owner and group.
    """
    try:
        mode = path.stat().st_mode
        secret = path.read_bytes().rstrip(b"\n")
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    if mode & 0o007:
        raise SettingsError(f"{path}: readable by everybody (mode {mode & 0o777:o}); use 0600")
    if not secret:
        raise SettingsError(f"{path}: empty")
    return secret


def command_environment(**changes: str) -> dict[str, str]:
    """The environment for commands of ours: what we were started with, and these on top."""
    return {**os.environ, **changes}

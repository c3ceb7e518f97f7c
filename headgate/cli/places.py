"""What a command takes from its environment, read once: directories, variables, terminal."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Places:
    """Where the command keeps things (XDG Base Directory Specification 0.8), and the environment.

    `config` holds the remembered sites, `state` the logins.
    """

    config: Path
    state: Path
    environ: Mapping[str, str]
    interactive: bool

    @classmethod
    def of_environment(cls, environ: Mapping[str, str]) -> "Places":
        """The places of this process; relative XDG paths are ignored, as the specification says."""
        home = Path(environ.get("HOME") or Path.home())
        return cls(
            config=_xdg(environ, "XDG_CONFIG_HOME", home / ".config") / "headgate",
            state=_xdg(environ, "XDG_STATE_HOME", home / ".local" / "state") / "headgate",
            environ=environ,
            interactive=sys.stdout.isatty() and sys.stderr.isatty(),
        )


def _xdg(environ: Mapping[str, str], name: str, default: Path) -> Path:
    value = Path(environ.get(name, ""))
    return value if value.is_absolute() else default

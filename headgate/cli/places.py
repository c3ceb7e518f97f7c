"""What a command takes from its environment, read once: directories, variables, terminal."""

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Places:
    """Where the command keeps things (XDG Base Directory Specification 0.8), and the environment.

    `config` holds the remembered sites, `state` the logins and SSH identities; `ssh` is OpenSSH's
    own. `attended`: somebody sits at a terminal and reads what is said. `program` is the command
    that runs this one again.
    """

    config: Path
    state: Path
    ssh: Path
    environ: Mapping[str, str]
    interactive: bool
    attended: bool
    program: tuple[str, ...]

    @classmethod
    def of_environment(cls, environ: Mapping[str, str]) -> "Places":
        """The places of this process; relative XDG paths are ignored, as the specification says."""
        home = Path(environ.get("HOME") or Path.home())
        return cls(
            config=_xdg(environ, "XDG_CONFIG_HOME", home / ".config") / "headgate",
            state=_xdg(environ, "XDG_STATE_HOME", home / ".local" / "state") / "headgate",
            ssh=home / ".ssh",
            environ=environ,
            interactive=sys.stdout.isatty() and sys.stderr.isatty(),
            attended=sys.stdin.isatty() and sys.stderr.isatty(),
            program=_program(sys.argv[0]),
        )


def _program(called: str) -> tuple[str, ...]:
    if Path(called).name == "__main__.py":
        return sys.executable, "-m", "headgate.cli"
    found = shutil.which(called)
    return (str(Path(found).absolute()),) if found else ("headgate",)


def _xdg(environ: Mapping[str, str], name: str, default: Path) -> Path:
    value = Path(environ.get(name, ""))
    return value if value.is_absolute() else default

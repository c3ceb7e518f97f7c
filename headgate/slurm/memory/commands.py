"""Putting `sbatch`, `scancel`, `scontrol`, `squeue` and `sinfo` of a simulation in a folder."""

import shlex
import sys
from pathlib import Path

from headgate.slurm.memory import shim

NAMES = ("sbatch", "scancel", "scontrol", "sinfo", "squeue")
SOCKET_VARIABLE = "HEADGATE_MEMORY_SOCKET"
"""Names the socket of the cluster that the commands speak to, instead of their own."""


def install(folder: Path, socket: Path) -> None:
    """Write the commands (0755), meant to be first in a PATH; they know their cluster's socket.

    Each is a small script around `shim.py`, which needs the standard library only.
    """
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    own = shlex.quote(str(socket))
    run = shlex.join([sys.executable, "-I", "-S", shim.__file__])
    for name in NAMES:
        path = folder / name
        new = path.with_suffix(".new")
        new.write_text(
            f"#!/bin/sh\n"
            f"{SOCKET_VARIABLE}=${{{SOCKET_VARIABLE}:-{own}}}\n"
            f"export {SOCKET_VARIABLE}\n"
            f'exec {run} {name} "$@"\n',
            encoding="utf-8",
        )
        new.chmod(0o755)
        new.rename(path)

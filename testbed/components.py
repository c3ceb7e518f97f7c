"""What a site is made of, as data: a process, whom it runs as, how one sees that it is ready."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec


class Listens(msgspec.Struct, frozen=True, tag="listens"):
    """Ready when a TCP connection to this port of 127.0.0.1 succeeds."""

    port: int


class Greets(msgspec.Struct, frozen=True, tag="greets"):
    """Ready when this port's first bytes are `prefix` (SSH servers speak first, RFC 4253)."""

    port: int
    prefix: str


class Answers(msgspec.Struct, frozen=True, tag="answers"):
    """Ready when `GET http://127.0.0.1:<port><path>` is answered with status 200."""

    port: int
    path: str = "/readyz"


class Accepts(msgspec.Struct, frozen=True, tag="accepts"):
    """Ready when a connection to this unix socket succeeds."""

    socket: str


class Prints(msgspec.Struct, frozen=True, tag="prints"):
    """Ready when this command, run as root, ends with 0 and a line of it matches `pattern`."""

    argv: tuple[str, ...]
    pattern: str


class Ends(msgspec.Struct, frozen=True, tag="ends"):
    """Not a server but a step: ready when it has ended with status 0."""


Probe = Listens | Greets | Answers | Accepts | Prints | Ends


class Component(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One process of the site; it stays in the foreground, its output goes to `log/<name>.log`.

    `after` names components that must be ready first. `private_tmp` is a folder that it alone (and
    what it starts) sees as /tmp: so each emulated node has its own. `runtime_directory` is made
    below /run and given to its user, as systemd's setting of that name does. `whole_group` sends
    signals to its process group, for servers whose workers outlive them. `deadline` is in
    seconds, from start to ready. An empty `user` is the one who starts it.
    """

    name: str
    argv: tuple[str, ...]
    ready: Probe
    user: str = "root"
    environment: Mapping[str, str] = {}
    after: tuple[str, ...] = ()
    private_tmp: str = ""
    runtime_directory: str = ""
    whole_group: bool = False
    deadline: float = 60.0


class State(StrEnum):
    """How a component fares."""

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    DONE = "done"
    FAILED = "failed"
    ENDED = "ended"
    STOPPED = "stopped"


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A component at one moment; `pid` is the site's own number, not the host's."""

    name: str
    state: State
    pid: int = 0
    status: int | None = None
    """The exit status of a process that ended (negative: the signal)."""
    seconds: float = 0.0
    """From its start to its readiness."""
    why: str = ""

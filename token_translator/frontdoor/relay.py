"""One session of a person, joined to one on the login node: bytes, terminal, signals, ends."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping

import asyncssh
import structlog

from headgate.problems import Problem
from token_translator.frontdoor.environment import Environment, environment
from token_translator.frontdoor.flow import Outflow, Valve

log = structlog.get_logger(__name__)

FAILED = 255
"""The exit status of `ssh` itself for whatever is not the command's own failure (ssh(1))."""
SUBSYSTEMS = frozenset({"sftp"})
OPEN_SECONDS = 20.0
MAX_TERMINAL = 256
_SIGNALS = frozenset({"ABRT", "ALRM", "FPE", "HUP", "ILL", "INT", "KILL", "PIPE", "QUIT", "SEGV"})
"""With TERM, USR1 and USR2 those of RFC 4254, section 6.10."""

Node = Callable[[], Awaitable[asyncssh.SSHClientConnection]]


class Relay(asyncssh.SSHServerSession[bytes]):
    """The person's side.

    `node` gives the connection to the login node, or raises a `Problem` whose sentence the person
    gets to read; `outflow` is the socket that all this person's bytes leave by; `notice` is shown
    where there is a terminal and thus somebody who reads it.
    """

    _user: asyncssh.SSHServerChannel[bytes]

    def __init__(
        self,
        *,
        node: Node,
        outflow: Outflow,
        ended: Callable[[], None],
        notice: Callable[[], str] = str,
    ) -> None:
        self._node = node
        self._ended = ended
        self._notice = notice
        self._command: str | None = None
        self._subsystem: str | None = None
        self._refusal = ""
        self._early: list[bytes] = []
        self._at_end = False
        self._gone = False
        self._channel: asyncssh.SSHClientChannel[bytes] | None = None
        self._output = _Output(outflow)
        self._opening: asyncio.Task[None] | None = None

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        """The channel is open; what it is for comes next."""
        self._user = chan
        self._output.user = chan
        # Before the first request: asyncssh would keep variables without measure.
        chan._env = Environment()  # noqa: SLF001 - asyncssh has no hook for it

    def pty_requested(
        self, term_type: str, term_size: tuple[int, int, int, int], term_modes: Mapping[int, int]
    ) -> bool:
        """A terminal, which the login node will make."""
        del term_size, term_modes
        return len(term_type) <= MAX_TERMINAL and term_type.isprintable()

    def shell_requested(self) -> bool:
        """A login shell."""
        return True

    def exec_requested(self, command: str) -> bool:
        """A command, for the login node's shell to understand."""
        if not command or "\0" in command:
            self._refusal = "A command is not empty and has no NUL in it."
        self._command = command
        return True

    def subsystem_requested(self, subsystem: str) -> bool:
        """SFTP; others are refused in words, which a failed request would not let us say."""
        if subsystem not in SUBSYSTEMS:
            self._refusal = "Of the subsystems only sftp is offered here."
        self._subsystem = subsystem
        return True

    def session_started(self) -> None:
        """Open the same on the login node."""
        if self._refusal:
            log.info("session_refused", reason=self._refusal)
            self._give_up(self._refusal)
            return
        if self._user.get_terminal_type() is not None and (notice := self._notice()):
            self._user.write(f"headgate: {notice}\r\n".encode())
        self._opening = asyncio.create_task(self._open())

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        """Input of the person."""
        del datatype
        if self._channel is None:
            self._early.append(data)
            self._user.pause_reading()  # at most a packet is kept; more waits in the window
        else:
            _write(self._channel, data)

    def eof_received(self) -> bool:
        """The end of the input; output goes on."""
        self._at_end = True
        if self._channel is not None:
            self._channel.write_eof()
        return True

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:
        """The person's window has another size."""
        if self._channel is not None:
            self._channel.change_terminal_size(width, height, pixwidth, pixheight)

    def signal_received(self, signal: str) -> None:
        """A signal for the command."""
        known = _SIGNALS | {"TERM", "USR1", "USR2"}
        if self._channel is not None and signal in known:
            self._channel.send_signal(signal)

    def break_received(self, msec: int) -> bool:
        """A break, for whoever still has serial lines."""
        if self._channel is not None:
            self._channel.send_break(msec)
        return self._channel is not None

    def pause_writing(self) -> None:
        """The person reads slower than the login node writes."""
        self._output.full()

    def resume_writing(self) -> None:
        """The person has caught up."""
        self._output.free()

    def connection_lost(self, exc: Exception | None) -> None:
        """The person is gone, or the session is over: so it is on the login node."""
        del exc
        self._gone = True
        if self._channel is not None:
            self._channel.abort()
        self._ended()

    async def _open(self) -> None:
        try:
            node = await self._node()
            async with asyncio.timeout(OPEN_SECONDS):
                channel = await self._open_on(node)
        except Problem as problem:
            self._give_up(problem.detail)
        except (asyncssh.Error, OSError, TimeoutError) as error:
            log.warning("login_node_session", error=repr(error))
            self._give_up("The login node opens no session at the moment.")
        except Exception:
            log.exception("session_failed")
            self._give_up("Something went wrong on our side.")
        else:
            self._join(channel)

    async def _open_on(
        self, node: asyncssh.SSHClientConnection
    ) -> asyncssh.SSHClientChannel[bytes]:
        user = self._user
        terminal = user.get_terminal_type()
        size = user.get_terminal_size()
        channel, _ = await node.create_session(
            lambda: self._output,
            command=self._command,
            subsystem=self._subsystem,
            env=list(environment(user.get_environment()).items()),
            send_env=None,
            request_pty=terminal is not None,
            term_type=terminal,
            term_size=size,
            term_modes=user.get_terminal_modes(),
            x11_forwarding=False,
            encoding=None,
        )
        if user.get_terminal_size() != size:
            channel.change_terminal_size(*user.get_terminal_size())
        return channel

    def _join(self, channel: asyncssh.SSHClientChannel[bytes]) -> None:
        self._channel = channel
        if self._gone:
            channel.abort()
            return
        for data in self._early:
            _write(channel, data)
        self._early.clear()
        if self._at_end:
            channel.write_eof()
        self._user.resume_reading()

    def _give_up(self, sentence: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # nobody is there to read it
            self._user.write_stderr(f"headgate: {sentence}\r\n".encode())
        self._user.exit(FAILED)


class _Output(asyncssh.SSHClientSession[bytes]):
    """The login node's side: what the command writes, and how it ends."""

    user: asyncssh.SSHServerChannel[bytes]

    def __init__(self, outflow: Outflow) -> None:
        self._outflow = outflow
        self._valve: Valve | None = None
        self._status: int | None = None
        self._signal: tuple[str, bool, str, str] | None = None

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        """The channel is open."""
        self._valve = Valve(stop=chan.pause_reading, start=chan.resume_reading)
        self._outflow.add(self._valve)

    def full(self) -> None:
        """The person's window is used up."""
        if self._valve is not None:
            self._valve.full("window")

    def free(self) -> None:
        """The person's window has room again."""
        if self._valve is not None:
            self._valve.free("window")

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        """Output, or, as extended data, what goes to standard error (RFC 4254, section 5.2)."""
        _write(self.user, data, datatype)

    def eof_received(self) -> bool:
        """The command writes no more; it may still read."""
        self.user.write_eof()
        return True

    def pause_writing(self) -> None:
        """The command reads slower than the person writes."""
        self.user.pause_reading()

    def resume_writing(self) -> None:
        """The command has caught up."""
        self.user.resume_reading()

    def exit_status_received(self, status: int) -> None:
        """How the command ended; told once all it wrote has been handed on."""
        self._status = status

    def exit_signal_received(
        self,
        signal: str,
        core_dumped: bool,  # noqa: FBT001 - asyncssh's hook
        msg: str,
        lang: str,
    ) -> None:
        """Which signal ended the command."""
        self._signal = (signal, core_dumped, msg, lang)

    def connection_lost(self, exc: Exception | None) -> None:
        """The session is over."""
        if self._valve is not None:
            self._outflow.remove(self._valve)
        if self._status is not None:
            self.user.exit(self._status)
        elif self._signal is not None:
            self.user.exit_with_signal(*self._signal)
        elif exc is not None:
            with contextlib.suppress(BrokenPipeError):  # nobody is there to read it
                self.user.write_stderr(b"headgate: The connection to the login node broke.\r\n")
            self.user.exit(FAILED)
        else:
            self.user.close()


def _write(
    channel: asyncssh.SSHClientChannel[bytes] | asyncssh.SSHServerChannel[bytes],
    data: bytes,
    datatype: asyncssh.DataType = None,
) -> None:
    # A channel that closes meanwhile says so to its own session, and that ends the other.
    with contextlib.suppress(BrokenPipeError):
        channel.write(data, datatype)

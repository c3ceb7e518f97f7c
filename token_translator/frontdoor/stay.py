"""After the login: the account that the translator names, and one connection to its login node."""

import asyncio

import asyncssh
from structlog.typing import FilteringBoundLogger

from headgate.clock import Clock
from headgate.problems import Forbidden, Problem, Unavailable
from token_translator.frontdoor.nodes import Nodes
from token_translator.frontdoor.translator import Login, Translator

IDLE_SECONDS = 20.0
"""Whoever opens nothing for that long (`ssh -MNf`) is connected before the certificate ends."""
MAX_NAME = 64

_Connecting = asyncio.Task[asyncssh.SSHClientConnection]


class Stays:
    """Begins a stay for whoever came in; `usernames` are names that anybody may come by."""

    def __init__(
        self, *, translator: Translator, nodes: Nodes, usernames: frozenset[str], clock: Clock
    ) -> None:
        self._translator = translator
        self._nodes = nodes
        self._usernames = usernames
        self._clock = clock

    def begin(
        self, token: str, username: str, *, address: str, log: FilteringBoundLogger
    ) -> "Stay":
        """A stay, by the token that opened the door; it is used once and not kept."""
        certified = asyncio.create_task(self._certify(token, username, address, log))
        return Stay(certified, nodes=self._nodes, clock=self._clock, log=log)

    async def _certify(
        self, token: str, username: str, address: str, log: FilteringBoundLogger
    ) -> Login:
        login = await self._translator.login(token, client_address=address)
        if username not in {login.account, *self._usernames}:
            name = username[:MAX_NAME]
            raise Forbidden(
                f"You are {login.account} here, not {name}: use ssh -l {login.account}.",
                code="other_account",
            )
        log.info("login", account=login.account, serial=login.serial)
        return login


class Stay:
    """One person's way on from here, for as long as their connection lasts."""

    def __init__(
        self,
        certified: asyncio.Task[Login],
        *,
        nodes: Nodes,
        clock: Clock,
        log: FilteringBoundLogger,
    ) -> None:
        self._certified = certified
        self._nodes = nodes
        self._clock = clock
        self._log = log
        self._used = False
        self._node: _Connecting | None = None
        self._ended = False
        self._idle = asyncio.create_task(self._connect_idle())
        certified.add_done_callback(self._judged)

    async def login(self) -> Login:
        """As whom; raises the translator's refusal as `Forbidden` or `Unavailable`."""
        self._used = True
        return await asyncio.shield(self._certified)

    async def node(self) -> asyncssh.SSHClientConnection:
        """The one connection to the login node that all sessions of a stay share.

        Raises:
            Forbidden, Unavailable: there is none, or none any more.
        """
        return await self._connection(await self.login())

    def end(self) -> None:
        """They are gone: so is everything that was opened for them."""
        self._ended = True
        self._certified.cancel()
        self._idle.cancel()
        if self._node is not None:
            self._node.add_done_callback(_hang_up)

    async def _connection(self, login: Login) -> asyncssh.SSHClientConnection:
        if self._node is None:
            if login.valid_before <= self._clock.now():
                raise Forbidden("The certificate of this login has ended: log in again.")
            self._node = asyncio.create_task(self._nodes.connect(login))
            self._node.add_done_callback(self._connected)
        connection = await asyncio.shield(self._node)
        if connection.is_closed():
            raise Unavailable("The connection to the login node broke: log in again.")
        return connection

    async def _connect_idle(self) -> None:
        await self._clock.sleep(IDLE_SECONDS)
        if not self._used:
            try:
                await self.node()
            except Problem as problem:
                self._log.info("idle_not_connected", reason=problem.detail)

    def _judged(self, certified: asyncio.Task[Login]) -> None:
        # Here, because a client that opens no session never asks.
        if certified.cancelled() or (error := certified.exception()) is None:
            return
        if isinstance(error, Problem):
            self._log.info("entry_refused", code=error.stable_code, reason=error.detail)
        else:
            self._log.error("entry_failed", exc_info=error)

    def _connected(self, connecting: _Connecting) -> None:
        if connecting.cancelled():
            return
        if connecting.exception() is not None:
            self._node = None  # the next session tries again
        elif self._ended:
            _hang_up(connecting)


def _hang_up(connecting: _Connecting) -> None:
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().abort()

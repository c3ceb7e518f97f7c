"""One connection of a person: the questions asyncssh asks about it, and their answers."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import asyncssh
import structlog

from headgate.identity import Principal
from headgate.problems import Forbidden, Problem, Unauthenticated, Unavailable
from token_translator.frontdoor import jump
from token_translator.frontdoor.admission import NOT_NOW, Admission
from token_translator.frontdoor.attempts import Attempts
from token_translator.frontdoor.devices import DeviceFlow
from token_translator.frontdoor.dialogue import Challenge, Dialogue
from token_translator.frontdoor.flow import Outflow
from token_translator.frontdoor.intake import Intake
from token_translator.frontdoor.limits import Place, Places
from token_translator.frontdoor.relay import Relay
from token_translator.frontdoor.stay import Stay, Stays
from token_translator.frontdoor.targets import Target, TargetError, Targets, addresses

log = structlog.get_logger(__name__)

MAX_ATTEMPTS = 6
"""Answers that were no token, and names tried, in one connection: sshd's MaxAuthTries."""
TOO_MUCH = "This is more than a login takes."
MOST_CHANNELS = "There are too many sessions on this connection."


@dataclass(frozen=True, slots=True)
class House:
    """What all visits share; `channels` is how many sessions and jumps a connection may have."""

    admission: Admission
    attempts: Attempts
    places: Places
    stays: Stays
    targets: Targets
    channels: int
    banner: str = ""
    devices: DeviceFlow | None = None


class Visit(asyncssh.SSHServer):
    """One connection.

    Until the login has succeeded nothing depends on the name that the client gave; whose account
    it is, the translator says afterwards.
    """

    def __init__(self, house: House, place: Place, devices: DeviceFlow | None = None) -> None:
        self._connection: asyncssh.SSHServerConnection | None = None
        self._house = house
        self._place = place
        self._log = log.bind(source=place.source)
        self._username = ""
        self._names = 0
        self._dialogue = Dialogue(devices=devices, attempts=house.attempts, source=place.source)
        self._attempts = 0
        self._told = False
        self._prompted = False
        self._busy = False
        self._token = ""
        self._principal: Principal | None = None
        self._is_new_here = False
        self._stay: Stay | None = None
        self._unwatch: Callable[[], None] | None = None
        self._intake: Intake | None = None
        self._outflow = Outflow()
        self._channels = 0
        self._refused: Counter[str] = Counter()
        self._gone = False

    # The connection itself

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        """Somebody is at the door."""
        self._connection = conn
        self._intake = Intake(conn, exceeded=self._cut_off)
        # asyncssh heeds the client's SSH window only, and that is whatever the client says.
        conn.pause_writing = self._outflow.pause  # type: ignore[method-assign] # asyncio's hook
        conn.resume_writing = self._outflow.resume  # type: ignore[method-assign] # likewise
        closed = self._house.admission.closed_for(self._place.source)
        if closed:
            # Not at once: SSH begins with the version, and that is sent after this.
            asyncio.get_running_loop().call_soon(
                conn.disconnect, asyncssh.DISC_BY_APPLICATION, closed
            )

    def connection_lost(self, exc: Exception | None) -> None:
        """They are gone, and everything that was theirs with them."""
        self._gone = True
        self._token = ""
        if self._unwatch is not None:
            self._unwatch()
        if self._stay is not None:
            self._stay.end()
            self._log.info("visit_ended", why=str(exc) if exc else "")
        if self._refused.total() > len(self._refused):
            self._log.warning("refused_in_all", **self._refused)
        self._house.places.release(self._place)

    def drop(self, reason: str) -> None:
        """End the connection now."""
        if self._connection is not None and not self._gone:
            self._log.warning("visit_dropped", reason=reason)
            self._connection.disconnect(asyncssh.DISC_BY_APPLICATION, reason)

    def _cut_off(self) -> None:
        self._house.admission.failed(self._place.source)
        self.drop(TOO_MUCH)

    # Who they are

    def begin_auth(self, username: str) -> bool:
        """A name is given; everybody has to say more than that."""
        self._names += 1
        if self._names > MAX_ATTEMPTS:
            raise _no_more("Too many names were tried.")
        self._username = username
        self._dialogue.forget()
        if self._house.banner and self._names == 1:
            self._say(self._house.banner)
        return True

    def kbdint_auth_supported(self) -> bool:
        """The token is asked for."""
        return True

    def password_auth_supported(self) -> bool:
        """A token may come as a password, from clients that can send it whole.

        Not after a token at the prompt was refused: a stock ssh would then ask for a password, in
        words that look as if the site had one for people.
        """
        return not self._prompted

    def public_key_auth_supported(self) -> bool:
        """Who has a certificate has no need of this service."""
        return False

    async def get_kbdint_challenge(self, username: str, lang: str, submethods: str) -> Challenge:
        """Ask for the token."""
        del username, lang, submethods
        self._told = False
        return await self._dialogue.begin()

    async def validate_kbdint_response(
        self, username: str, responses: Sequence[str]
    ) -> bool | Challenge:
        """Judge the answer, or ask for the next part.

        A refusal is said at once, with no prompt (RFC 4256, section 3.2), and the login has failed
        when the client has answered that: nobody knows whether it will ask for another try.
        """
        del username
        told, self._told = self._told, False
        if len(responses) != (0 if told else 1):
            raise _no_more("One prompt has one answer.")
        if told:
            return False
        verdict = await self._judge(self._dialogue.take(responses[0]))
        if not isinstance(verdict, str):
            return verdict
        self._told = self._prompted = True
        return "", verdict, "", []

    async def validate_password(self, username: str, password: str) -> bool:
        """A token that came in one piece; a stock ssh would have cut a long one."""
        del username
        verdict = await self._judge(_whole(password))
        if isinstance(verdict, str):
            self._say(f"{verdict}\r\n")  # this method has no words of its own
        return verdict is True

    async def _judge(self, answer: Coroutine[Any, Any, Challenge | str]) -> bool | Challenge | str:
        """True: what was answered opens the door; or what to ask next, or why it does not."""
        if self._busy or self._principal is not None:
            answer.close()
            raise _no_more("One login at a time.")
        if self._attempts >= MAX_ATTEMPTS:
            answer.close()
            raise _no_more("Too many tokens were tried.")
        self._busy = True
        try:
            token = await answer
            if not isinstance(token, str):
                return token
            await self._enter(token)
        except Unauthenticated as problem:
            self._house.admission.failed(self._place.source)
            return self._refuse(problem.detail)
        except (Forbidden, Unavailable) as problem:
            # The token is good: nobody is guessing, so it does not count against the address.
            return self._refuse(problem.detail)
        finally:
            self._busy = False
        return True

    async def _enter(self, token: str) -> None:
        admission = self._house.admission
        try:
            principal, self._unwatch = await admission.admit(token, self._place, drop=self.drop)
        except asyncio.CancelledError:
            # Whoever hangs up or begins anew before a token was judged has had that attempt.
            self._attempts += 1
            admission.failed(self._place.source)
            raise
        identity = principal.identity
        self._log = self._log.bind(iss=identity.iss, sub=identity.sub, client=principal.client_id)
        if self._dialogue.by_browser:
            self._is_new_here = admission.by_browser(identity, self._place.source)
        self._principal, self._token = principal, token

    def _refuse(self, reason: str) -> str:
        self._attempts += 1
        self._log.info("login_refused", reason=reason)
        if self._attempts >= MAX_ATTEMPTS:
            raise _no_more(reason)
        return reason

    def _say(self, words: str) -> None:
        """Outside of any question: clients show it while somebody logs in."""
        if self._connection is not None:
            self._connection.send_auth_banner(words)

    # What they may do

    def auth_completed(self) -> None:
        """The token was good: have the translator say what it is good for."""
        if self._intake is not None:
            self._intake.open()
        token, self._token = self._token, ""
        if token and not self._gone:
            self._stay = self._house.stays.begin(
                token, self._username, address=self._place.origin.address, log=self._log
            )

    def session_requested(self) -> asyncssh.SSHServerSession[bytes]:
        """A shell, a command or SFTP: on the login node."""
        stay = self._take_channel()
        return Relay(
            node=stay.node, outflow=self._outflow, ended=self._end_channel, notice=self._notice
        )

    def _notice(self) -> str:
        """What a person at a terminal should know of logins that may not have been theirs."""
        if self._principal is None or self._is_new_here:
            return ""
        return self._house.admission.notice(self._principal.identity)

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> Awaitable[asyncssh.SSHTCPSession[bytes]]:
        """`ssh -J`: on to a listed target."""
        del orig_host, orig_port
        target = self._house.targets.find(dest_host, dest_port)
        if target is None:
            if self._is_first("target_refused"):
                self._log.warning("target_refused", host=dest_host[:255], port=dest_port)
            raise _prohibited("This is not one of the targets of this service.")
        return self._jump(self._take_channel(), target)

    async def _jump(self, stay: Stay, target: Target) -> asyncssh.SSHTCPSession[bytes]:
        try:
            await stay.login()
            to = await addresses(target)
            session = await jump.connect(
                to, target.port, outflow=self._outflow, ended=self._end_channel
            )
        except Problem as problem:
            self._end_channel()
            raise _prohibited(problem.detail) from problem
        except (TargetError, OSError, TimeoutError) as error:
            self._end_channel()
            self._log.warning("target_away", host=target.host, port=target.port, error=repr(error))
            raise asyncssh.ChannelOpenError(
                asyncssh.OPEN_CONNECT_FAILED, f"{target.host} cannot be reached"
            ) from error
        if self._gone:
            session.connection_lost(None)
            raise _prohibited(NOT_NOW)
        self._log.info("jump", host=target.host, port=target.port)
        return session

    def server_requested(self, listen_host: str, listen_port: int) -> bool:
        """`ssh -R`: not here."""
        if self._is_first("listening_refused"):
            self._log.info("listening_refused", host=listen_host[:255], port=listen_port)
        return False

    def _is_first(self, refusal: str) -> bool:
        """Count a refusal; only the first is logged, and the sum at the end."""
        self._refused[refusal] += 1
        return self._refused[refusal] == 1

    def _take_channel(self) -> Stay:
        if self._stay is None:
            raise _prohibited(NOT_NOW)
        if self._channels >= self._house.channels:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_RESOURCE_SHORTAGE, MOST_CHANNELS)
        self._channels += 1
        return self._stay

    def _end_channel(self) -> None:
        self._channels -= 1


async def _whole(password: str) -> str:
    return "".join(password.split())


def _no_more(reason: str) -> asyncssh.DisconnectError:
    return asyncssh.DisconnectError(asyncssh.DISC_NO_MORE_AUTH_METHODS_AVAILABLE, reason)


def _prohibited(reason: str) -> asyncssh.ChannelOpenError:
    return asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, reason)

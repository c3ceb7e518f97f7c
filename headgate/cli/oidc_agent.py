"""Tokens from oidc-agent: one JSON request over its unix socket, as its IPC-API describes."""

import asyncio
import contextlib
from typing import Any

import msgspec

from headgate.cli.failures import CommandFailure

SOCKET_VARIABLE = "OIDC_SOCK"
ACCOUNT_VARIABLE = "OIDC_AGENT_ACCOUNT"
SECONDS = 30.0
"""The agent may have to ask the issuer, or its user for a confirmation."""
MIN_VALID_SECONDS = 300
MAX_ANSWER_BYTES = 1024 * 1024


class OidcAgent:
    """The agent's token for an account of its, else for the site's issuer."""

    label = "oidc-agent"

    def __init__(self, socket: str, *, account: str, issuer: str, audience: str) -> None:
        self.advice = "The token came from oidc-agent; see oidc-add -l, or: headgate login"
        self._socket = socket
        self._wish = {"account": account} if account else {"issuer": issuer}
        self._audience = audience

    async def __call__(self) -> str:
        """A token that is good for some minutes.

        Raises:
            CommandFailure: the agent is not there, or has none; in its words.
        """
        request = {
            "request": "access_token",
            **self._wish,
            "min_valid_period": MIN_VALID_SECONDS,
            "application_hint": "headgate",
            **({"audience": self._audience} if self._audience else {}),
        }
        try:
            async with asyncio.timeout(SECONDS):
                answer = await self._ask(msgspec.json.encode(request))
        except (OSError, TimeoutError) as error:
            why = getattr(error, "strerror", None) or "it does not answer"
            raise CommandFailure(f"oidc-agent at {self._socket} cannot be asked: {why}.") from error
        token = answer.get("access_token")
        if answer.get("status") != "success" or not isinstance(token, str) or not token:
            words = str(answer.get("error") or "it sent no token")
            raise CommandFailure(
                f"oidc-agent has no token for {next(iter(self._wish.values()))}: {words}.",
                advice="Run: oidc-add ACCOUNT, or: headgate login",
                code="oidc_agent",
            )
        return token

    async def _ask(self, request: bytes) -> dict[str, Any]:
        reader, writer = await asyncio.open_unix_connection(self._socket)
        try:
            writer.write(request)
            await writer.drain()
            received = b""
            while piece := await reader.read(65536):
                received += piece
                if len(received) > MAX_ANSWER_BYTES:
                    break
                with contextlib.suppress(msgspec.DecodeError):
                    # The agent need not close: an answer is over when it is a whole object.
                    return msgspec.json.decode(received, type=dict[str, Any])
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        return {}

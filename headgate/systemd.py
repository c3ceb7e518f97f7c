"""Telling systemd how a service fares, as sd_notify(3) describes it."""

import os
import socket

import structlog

log = structlog.get_logger(__name__)


def notify(state: str) -> bool:
    """Send one state (`READY=1`, `STOPPING=1`, …); False where nobody listens (any more).

    Source: sd_notify(3). An address that starts with `@` is in the abstract namespace.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as connection:
        try:
            connection.connect(address)
            connection.sendall(state.encode())
        except OSError as error:
            log.warning("systemd_not_told", state=state, error=error.strerror)
            return False
    return True

"""The device authorization grant of RFC 8628: codes, their states, the pace of polling."""

import secrets
from dataclasses import dataclass
from enum import StrEnum

from headgate.clock import Clock

_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"  # RFC 8628, section 6.1
SLOWER_SECONDS = 5


class DeviceState(StrEnum):
    """Where a device code stands."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    USED = "used"


@dataclass(slots=True)
class DeviceCode:
    """One request of a device; times are the clock's monotonic seconds."""

    device_code: str
    user_code: str
    client_id: str
    scopes: tuple[str, ...]
    audience: tuple[str, ...]
    expires: float
    interval: int
    acr_values: tuple[str, ...] = ()
    state: DeviceState = DeviceState.PENDING
    username: str = ""
    acr: str = ""
    auth_time: int = 0
    polled: float | None = None


class DeviceCodes:
    """All requests that have not expired."""

    def __init__(self, *, clock: Clock, lifetime: int, interval: int) -> None:
        self._clock = clock
        self._lifetime = lifetime
        self._interval = interval
        self._codes: dict[str, DeviceCode] = {}

    def start(
        self,
        client_id: str,
        scopes: tuple[str, ...],
        audience: tuple[str, ...],
        acr_values: tuple[str, ...] = (),
    ) -> DeviceCode:
        """A new pair of codes."""
        letters = "".join(secrets.choice(_LETTERS) for _ in range(8))
        code = DeviceCode(
            device_code=secrets.token_urlsafe(32),
            user_code=f"{letters[:4]}-{letters[4:]}",
            client_id=client_id,
            scopes=scopes,
            audience=audience,
            expires=self._clock.monotonic() + self._lifetime,
            interval=self._interval,
            acr_values=acr_values,
        )
        self._codes[code.device_code] = code
        return code

    def by_user_code(self, typed: str) -> DeviceCode | None:
        """The pending request a person means, however they wrote its code."""
        plain = "".join(letter for letter in typed.upper() if letter in _LETTERS)
        for code in self._codes.values():
            pending = code.state is DeviceState.PENDING and not self._expired(code)
            if pending and secrets.compare_digest(code.user_code.replace("-", ""), plain):
                return code
        return None

    def poll(self, device_code: str, client_id: str) -> DeviceCode | str:
        """The approved request, once; else the `error` of RFC 8628, section 3.5."""
        code = self._codes.get(device_code)
        if code is None or code.client_id != client_id or code.state is DeviceState.USED:
            return "invalid_grant"
        if self._expired(code):
            return "expired_token"
        if code.state is DeviceState.DENIED:
            return "access_denied"
        if code.state is DeviceState.APPROVED:
            code.state = DeviceState.USED
            return code
        now, before = self._clock.monotonic(), code.polled
        code.polled = now
        if before is not None and now - before < code.interval:
            code.interval += SLOWER_SECONDS
            return "slow_down"
        return "authorization_pending"

    def _expired(self, code: DeviceCode) -> bool:
        return code.expires <= self._clock.monotonic()

"""What an administrator sets for the signer."""

from typing import Annotated

import msgspec

from headgate.settings import Section


class SignerSettings(Section, frozen=True):
    """The signer's TOML; every key is a path, a name or a number, none a secret.

    `user_ca` and `host_ca` name private keys (OpenSSH, Ed25519, 0600, owned by the signer): the
    first of each signs, up to one more is handed out as trusted for the time of a rotation.
    `allowed_users` are the login names (or uids) of the processes that may connect, asked of the
    kernel. `socket_group` may open the socket at all; empty: only our own uid. `ledger` and
    `persons` are SQLAlchemy URLs, two databases on purpose: backups of the one must not hold
    the other. `serial_floor` is for after a restore: above the highest serial seen anywhere.
    `embedded`: one uid runs everything, so the ceilings file may be that uid's own.
    """

    socket: str
    ceilings: str
    user_ca: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=2)]
    host_ca: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=2)]
    ledger: str
    persons: str
    index_key: str
    allowed_users: tuple[str | int, ...]
    socket_group: str = ""
    serial_floor: int = 0
    embedded: bool = False
    log_level: str = "info"

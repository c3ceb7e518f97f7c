"""Whether the authorities of the settings fit the ledger, before anything is written."""

from datetime import datetime

from headgate.settings import SettingsError
from token_translator.keys import fingerprint
from token_translator.signer import authorities, commands
from token_translator.signer.authorities import Authorities
from token_translator.signer.ledger import Ledger


def look(ledger: Ledger, keys: Authorities, now: datetime) -> list[str]:
    """What is to be said of authorities that are in the settings no more; nothing is written.

    Raises:
        SettingsError: a key was once the other kind's, or is revoked: as `authorities.register`.
    """
    present = {fingerprint(one.blob): role for role, _, one in keys.each()}
    with ledger.reading() as connection:
        known = authorities.lines(connection)
    for row in known:
        role = present.get(row.fingerprint)
        if role is not None and role != row.role:
            raise SettingsError(f"{row.fingerprint} was the authority of {row.role} certificates")
        if role is not None and row.revoked is not None:
            raise SettingsError(f"{row.fingerprint} is revoked: no certificate of it is accepted")
    gone = [row for row in known if row.fingerprint not in present and row.revoked is None]
    if not gone:
        return []
    return [
        _sentence(one) for one in commands.list_authorities(ledger, now) if _missed(one, present)
    ]


def _missed(one: dict[str, object], present: dict[str, str]) -> bool:
    revoked = one["state"] == "revoked"
    return one["fingerprint"] not in present and not revoked and one["live_certificates"] != 0


def _sentence(one: dict[str, object]) -> str:
    many = one["live_certificates"]
    return (
        f"{one['role']}_ca is without {one['fingerprint']}, which signed {many} unexpired "
        f"certificate{'' if many == 1 else 's'}, the last until {one['last_expires']}: nodes that "
        "trust it no more refuse them; keep it behind the first until then"
    )

"""What `headgate-accounts` is told: one TOML file."""

import ipaddress
from typing import Literal
from urllib.parse import urlsplit

from account_importer.rules import (
    AccountSettings,
    ApprovalSettings,
    BrakeSettings,
    IdSettings,
    MappingSettings,
)
from headgate.peers import PeerSettings
from headgate.service import ListenSettings
from headgate.settings import Section, SettingsError


class SourceSettings(Section, frozen=True):
    """The INDIGO IAM that is read, and who of it is eligible.

    `issuer` is the exact `iss` of tokens; endpoints come from its discovery. The client needs the
    scope `scim:read`. Users in any of `groups_any` are eligible. `pull_seconds`: how often `serve`
    reads and plans; 0: never, timers do.
    """

    issuer: str
    client_id: str
    client_secret_file: str
    groups_any: tuple[str, ...]
    pull_seconds: float = 0
    max_users: int = 200_000
    timeout_seconds: float = 30


class TranslatorSettings(Section, frozen=True):
    """The token_translator, which is told of blocks: its own URL, and who we are to it.

    `key_file` is our Ed25519 key (PEM, 0600). `seconds`: how often we look whether there is
    something to tell.
    """

    url: str
    instance: str
    key_file: str
    seconds: float = 1.0


class Settings(Section, frozen=True):
    """The file of `headgate-accounts`.

    `audience` is the URL under which peers call us. `policy` is the root-owned file that `apply`
    obeys in mode `unix`. `run_as` is who owns the database; empty: whoever owns its folder.
    Without `translator`, the token_translator hears of a block when it asks about somebody only.
    """

    realm: str
    source: SourceSettings
    database: str
    audience: str
    how_to_ask: str
    mode: Literal["unix", "mapping"] = "unix"
    policy: str = ""
    run_as: str = ""
    log_level: str = "info"
    listen: ListenSettings = ListenSettings()
    peers: tuple[PeerSettings, ...] = ()
    brake: BrakeSettings = BrakeSettings()
    ids: IdSettings = IdSettings()
    accounts: AccountSettings = AccountSettings()
    mapping: MappingSettings = MappingSettings()
    approval: ApprovalSettings = ApprovalSettings()
    translator: TranslatorSettings | None = None


def check(settings: Settings) -> None:
    """What types alone cannot say. Raises SettingsError."""
    issuer = urlsplit(settings.source.issuer)
    if issuer.scheme != "https" and not _loopback(issuer.hostname or ""):
        raise SettingsError("source.issuer: must be https (http is for loopback only)")
    if not settings.source.groups_any:
        raise SettingsError("source.groups_any: name at least one group whose members get accounts")
    if settings.mode == "unix" and not settings.policy:
        raise SettingsError("policy: mode unix needs the root-owned file that apply obeys")
    mapping = settings.mapping
    if settings.mode == "mapping" and not (mapping.account or mapping.users):
        raise SettingsError("mapping: name an account, or users")
    if not 1000 <= settings.ids.first <= settings.ids.last < 2**31:  # noqa: PLR2004 - below 1000 is the system's (login.defs(5))
        raise SettingsError("ids: first and last must be a range above 1000")


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

"""The suite at a test site: where its services are, their keys, and what each is told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from testbed.files import Files
from testbed.peer_keys import key_path

CLI_CLIENT = "headgate-cli"
_IMPORTER_CLIENT = "account-importer"
_IMPORTER_SECRET = "importer-secret"  # noqa: S105 - of a test site that ends with its secrets

ISSUER, SIGNER, TOKENS, ACCOUNTS, GATEWAY = (
    "headgate-issuer",
    "headgate-signer",
    "headgate-tokens",
    "headgate-accounts",
    "headgate-gateway",
)
INFO, PROBE = "headgate-info", "headgate-probe"
FRONTDOOR = "headgate-frontdoor"
MODULES = {
    SIGNER: "token_translator.signer",
    TOKENS: "token_translator",
    FRONTDOOR: "token_translator.frontdoor",
    ACCOUNTS: "account_importer",
    GATEWAY: "gateway",
    INFO: "info_provider",
    PROBE: "monitoring_probe",
}
"""The suite's commands and the modules behind them."""

PEOPLE: tuple[dict[str, Any], ...] = (
    {"username": "alice", "given_name": "Alice", "family_name": "Ada", "groups": ["hpc", "gpu"]},
    {"username": "bob", "given_name": "Bob", "family_name": "Byron", "groups": ["hpc"]},
    {"username": "carol", "given_name": "Carol", "family_name": "Curie", "groups": ["hpc"]},
    {"username": "dave", "given_name": "Dave", "family_name": "Darwin", "groups": []},
)
"""Carol's shell is tcsh; dave is in no group and never gets an account."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the services listen; the URLs are also their audiences. `issuer` ends in a slash."""

    issuer: str
    tokens: str
    accounts: str
    gateway: str

    @classmethod
    def on(cls, issuer: int, tokens: int, accounts: int, gateway: int) -> "Addresses":
        """On these ports of the loopback."""
        host = "http://127.0.0.1"
        return cls(
            f"{host}:{issuer}/", f"{host}:{tokens}", f"{host}:{accounts}", f"{host}:{gateway}"
        )


@dataclass(frozen=True, slots=True)
class SshService:
    """An SSH service at a test site: where it listens on the loopback, and who knows its key."""

    port: int
    known_hosts: Path


@dataclass(frozen=True, slots=True)
class Suite:
    """How one site runs the suite. `cluster` is its table of the gateway's TOML.

    Where there is a login node, `frontdoor` is the SSH service before it.

    `mapping` is the one account that everybody gets where no accounts can be made; without it
    the importer makes real ones. `separate` gives each service a user of its own; without it
    `uid` runs them all.
    """

    files: Files
    addresses: Addresses
    python: Path
    realm: str
    session_program: Path
    cluster: Mapping[str, Any]
    mapping: Mapping[str, Any] | None = None
    frontdoor: SshService | None = None
    separate: bool = True
    uid: int = 0

    def settings(self, service: str) -> Path:
        """A service's TOML."""
        return self.files.path("conf", f"{service}.toml")

    def command(self, module: str, service: str, *verb: str) -> tuple[str, ...]:
        """A command of the suite with its settings."""
        return (
            str(self.python),
            "-P",
            "-m",
            module,
            "--config",
            str(self.settings(service)),
            *verb,
        )


def issuer(suite: Suite) -> None:
    """The issuer: people, clients."""
    addresses = suite.addresses
    everything = ["openid", "profile", "email", "offline_access"]
    device = "urn:ietf:params:oauth:grant-type:device_code"
    exchange = "urn:ietf:params:oauth:grant-type:token-exchange"
    write_settings(
        suite,
        ISSUER,
        {
            "state_dir": str(suite.files.path("var", ISSUER)),
            "listen": _listen(addresses.issuer),
            "device_interval_seconds": 1,
            "users": [dict(person) for person in PEOPLE],
            "clients": [
                {
                    "client_id": CLI_CLIENT,
                    "grants": ["authorization_code", device, "refresh_token", exchange],
                    "scopes": everything,
                    "redirect_uris": ["http://127.0.0.1/callback"],
                    "reuse_refresh_tokens": False,
                },
                {"client_id": FRONTDOOR, "grants": [device], "scopes": ["openid", "profile"]},
                {
                    "client_id": _IMPORTER_CLIENT,
                    "secret": _IMPORTER_SECRET,
                    "grants": ["client_credentials"],
                    "scopes": ["scim:read"],
                },
            ],
        },
    )


def signer(suite: Suite) -> None:
    """The signer and its ceilings."""
    files = suite.files
    home = files.path("var", SIGNER)
    ceilings = {"session_programs": [str(suite.session_program)], "per_minute": 60_000}
    path = files.write("conf/ceilings.toml", tomli_w.dumps(ceilings))
    write_settings(
        suite,
        SIGNER,
        {
            "socket": str(files.path("var/signer/socket")),
            "ceilings": str(path),
            "user_ca": [str(home / "user_ca")],
            "host_ca": [str(home / "host_ca")],
            "ledger": f"sqlite:///{home}/ledger.db",
            "persons": f"sqlite:///{home}/persons.db",
            "index_key": str(home / "index_key"),
            **(
                {"allowed_users": [TOKENS], "socket_group": TOKENS}
                if suite.separate
                else {"allowed_users": [suite.uid], "embedded": True}
            ),
        },
    )


def tokens(
    suite: Suite,
    gateway_key: Mapping[str, Any],
    accounts_key: Mapping[str, Any],
    frontdoor_key: Mapping[str, Any] | None,
) -> None:
    """The translator."""
    files, addresses = suite.files, suite.addresses
    write_settings(
        suite,
        TOKENS,
        {
            "url": addresses.tokens,
            "audience": addresses.tokens,
            "realms": [suite.realm],
            "per_minute": 60_000,  # benchmarks
            "database": f"sqlite+aiosqlite:///{files.path('var', TOKENS)}/tokens.db",
            "session_program": str(suite.session_program),
            "issuers": [{"url": addresses.issuer}],
            "identity": {"instance": TOKENS, "key_file": str(key_path(suite.files, TOKENS))},
            "registry": {"url": addresses.accounts},
            "signer": {"socket": str(files.path("var/signer/socket"))},
            "peers": [
                {
                    "instance": GATEWAY,
                    "keys": [gateway_key],
                    "verbs": [
                        "seals",
                        "certificates.session",
                        "certificates.delegated",
                        "changes.read",
                    ],
                    "audience": addresses.gateway,
                },
                {"instance": ACCOUNTS, "keys": [accounts_key], "verbs": ["suspend"]},
                *_frontdoor_peer(suite.frontdoor, frontdoor_key),
            ],
            "delegation": {"per_minute": 6000},
            "hosts": {"known_hosts": _host_keys(suite)},
            "listen": _listen(addresses.tokens),
        },
    )


def _host_keys(suite: Suite) -> list[str]:
    """The login node's lines for people's known_hosts; none where there is no login node."""
    known = suite.cluster.get("ssh", {}).get("known_hosts")
    return Path(known).read_text(encoding="ascii").splitlines() if known else []


def _frontdoor_peer(
    service: SshService | None, key: Mapping[str, Any] | None
) -> list[dict[str, Any]]:
    if service is None or key is None:
        return []
    verbs = ["certificates.login", "changes.read"]
    return [
        {"instance": FRONTDOOR, "keys": [key], "verbs": verbs, "audience": audience_of(service)}
    ]


def audience_of(service: SshService) -> str:
    """What tokens for the front door are meant for."""
    return f"ssh://127.0.0.1:{service.port}"


def frontdoor(suite: Suite, service: SshService) -> None:
    """The SSH front door, with a host key of its own."""
    files, node = suite.files, dict(suite.cluster["ssh"])
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    host_key = files.write(f"conf/{FRONTDOOR}.host_key", private, owner=FRONTDOOR, mode=0o600)
    line = f"[127.0.0.1]:{service.port} {public.decode()}\n"
    files.write(str(service.known_hosts.relative_to(files.path())), line)
    write_settings(
        suite,
        FRONTDOOR,
        {
            "audience": audience_of(service),
            "realm": suite.realm,
            "host_key": str(host_key),
            "state": str(files.path("var", FRONTDOOR, "state.db")),
            "source_address": "127.0.0.1",
            "issuers": [{"url": suite.addresses.issuer}],
            "identity": {"instance": FRONTDOOR, "key_file": str(key_path(suite.files, FRONTDOOR))},
            "token_translator": {"url": suite.addresses.tokens},
            "nodes": [node],
            "jump_targets": [{"host": "login", "port": node["port"], "address": node["host"]}],
            # A loopback address of its own stands for the network where this is allowed.
            "device_flow": {
                "issuer": suite.addresses.issuer,
                "client_id": FRONTDOOR,
                "networks": ["127.0.0.2/32"],
                "code_seconds": 60,
            },
            # Everybody comes from one address here, and tests fail at it on purpose.
            "limits": {"failures": 1000, "logins_per_minute": 1000},
            "listen": {"host": "127.0.0.1", "port": service.port},
        },
    )


def accounts(suite: Suite, peers: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """The importer, its secret and the policy of `apply`."""
    files, addresses = suite.files, suite.addresses
    secret = files.write(f"conf/{ACCOUNTS}.secret", _IMPORTER_SECRET, owner=ACCOUNTS, mode=0o600)
    mode: dict[str, Any]
    if suite.mapping is not None:
        newcomers = "link"
        mode = {"mode": "mapping", "mapping": dict(suite.mapping)}
    else:
        newcomers = "create"
        policy = {
            "realm": suite.realm,
            "kinds": ["create", "block", "unblock"],
            "uid_first": 20000,
            "uid_last": 29999,
            "shells": ["/bin/bash", "/bin/tcsh"],
        }
        path = files.write("conf/policy.toml", tomli_w.dumps(policy))
        accounts = {"shells": {"carol": "/bin/tcsh"}}
        mode = {"mode": "unix", "policy": str(path), "accounts": accounts}
    write_settings(
        suite,
        ACCOUNTS,
        {
            "realm": suite.realm,
            "log_level": "warning",
            "audience": addresses.accounts,
            "database": f"sqlite+aiosqlite:///{files.path('var', ACCOUNTS)}/accounts.db",
            "how_to_ask": "Ask the site's administrator to put you into the group hpc.",
            "source": {
                "issuer": addresses.issuer,
                "client_id": _IMPORTER_CLIENT,
                "client_secret_file": str(secret),
                "groups_any": ["hpc"],
            },
            # Who comes into the group gets in by this rule; anything else waits for a person.
            "approval": {"kinds": [newcomers], "groups_any": ["hpc"]},
            "listen": _listen(addresses.accounts),
            "peers": [
                {"instance": name, "keys": [key], "verbs": ["registry.read"]} for name, key in peers
            ],
            "translator": {
                "url": addresses.tokens,
                "instance": ACCOUNTS,
                "key_file": str(key_path(suite.files, ACCOUNTS)),
            },
            **mode,
        },
    )


def gateway(suite: Suite) -> None:
    """The gateway."""
    addresses = suite.addresses
    write_settings(
        suite,
        GATEWAY,
        {
            "url": addresses.gateway,
            "instance": GATEWAY,
            "peer_key": str(key_path(suite.files, GATEWAY)),
            "database": f"sqlite+aiosqlite:///{suite.files.path('var', GATEWAY)}/gateway.db",
            "issuers": [{"url": addresses.issuer}],
            "token_translator": {"url": addresses.tokens},
            "registry": {"url": addresses.accounts},
            "clusters": [{"realm": suite.realm, **suite.cluster}],
            "login": [
                {
                    "issuer": addresses.issuer,
                    "client_id": CLI_CLIENT,
                    "audiences": [addresses.gateway, addresses.tokens],
                }
            ],
            "listen": _listen(addresses.gateway),
        },
    )


def _listen(url: str) -> dict[str, Any]:
    return {"host": "127.0.0.1", "port": int(url.rstrip("/").rsplit(":", 1)[1])}


def write_settings(suite: Suite, service: str, settings: Mapping[str, Any]) -> None:
    """A service's TOML: root's, so that no service can rewrite what it, or `apply`, is told."""
    suite.files.write(f"conf/{service}.toml", tomli_w.dumps(settings), group=service, mode=0o640)

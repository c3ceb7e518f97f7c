"""The suite at a test site: where its services are, their keys, and what each is told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import tomli_w
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from joserfc import jwk

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
MODULES = {
    SIGNER: "token_translator.signer",
    TOKENS: "token_translator",
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


class Files(Protocol):
    """Where files are written: with owners on the real site, without where there is one uid."""

    def path(self, *parts: str) -> Path:
        """A place in the site's folder."""

    def make(self, name: str, *, owner: str = "root", mode: int = 0o755) -> Path:
        """A folder."""

    def write(
        self,
        name: str,
        content: str | bytes,
        *,
        owner: str = "root",
        group: str = "",
        mode: int = 0o644,
    ) -> Path:
        """A file."""


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
class Suite:
    """How one site runs the suite. `cluster` is its table of the gateway's TOML.

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
    _write(
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
                    "grants": [device, "refresh_token"],
                    "scopes": everything,
                },
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
    ceilings = {"session_programs": [str(suite.session_program)]}
    path = files.write("conf/ceilings.toml", tomli_w.dumps(ceilings))
    _write(
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


def tokens(suite: Suite, gateway_key: Mapping[str, Any]) -> None:
    """The translator."""
    files, addresses = suite.files, suite.addresses
    _write(
        suite,
        TOKENS,
        {
            "url": addresses.tokens,
            "audience": addresses.tokens,
            "realms": [suite.realm],
            "database": f"sqlite+aiosqlite:///{files.path('var', TOKENS)}/tokens.db",
            "session_program": str(suite.session_program),
            "issuers": [{"url": addresses.issuer}],
            "identity": {"instance": TOKENS, "key_file": str(_key_path(suite, TOKENS))},
            "registry": {"url": addresses.accounts},
            "signer": {"socket": str(files.path("var/signer/socket"))},
            "peers": [
                {
                    "instance": GATEWAY,
                    "keys": [gateway_key],
                    "verbs": ["seals", "certificates.session", "certificates.delegated"],
                    "audience": addresses.gateway,
                }
            ],
            "delegation": {"per_minute": 6000},
            "listen": _listen(addresses.tokens),
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
    _write(
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
            **mode,
        },
    )


def gateway(suite: Suite) -> None:
    """The gateway."""
    addresses = suite.addresses
    _write(
        suite,
        GATEWAY,
        {
            "url": addresses.gateway,
            "instance": GATEWAY,
            "peer_key": str(_key_path(suite, GATEWAY)),
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


def info(suite: Suite) -> None:
    """The information provider."""
    _write(
        suite,
        INFO,
        {
            "domain": {"id": "TESTBED"},
            "location": {"name": "Testbed"},
            "service": {"name": "testbed.example.org"},
            "endpoint": [
                {"url": suite.addresses.gateway, "health": f"{suite.addresses.gateway}/readyz"}
            ],
            "slurm": {**_cluster_read(suite), "timeout": 10.0},
        },
    )


def probe(suite: Suite) -> None:
    """The probe."""
    addresses = suite.addresses
    services = {"gateway": addresses.gateway, "tokens": addresses.tokens}
    _write(
        suite,
        PROBE,
        {
            "slurm": _cluster_read(suite),
            "service": [{"name": name, "url": url} for name, url in services.items()],
            "spool": {"path": str(suite.files.path("var", PROBE, "spool"))},
        },
    )


def _cluster_read(suite: Suite) -> dict[str, Any]:
    """How the agents read the gateway's cluster."""
    if "memory" in suite.cluster:
        return {"memory": dict(suite.cluster["memory"])}
    return {"conf": suite.cluster["slurm_conf"]}


def peer_key(suite: Suite, service: str) -> dict[str, Any]:
    """A service's own key in its file; the public half as a JWK."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path = _key_path(suite, service)
    suite.files.write(f"conf/{path.name}", private, owner=service, mode=0o600)
    return dict(jwk.OKPKey.import_key(private).as_dict(private=False))


def _key_path(suite: Suite, service: str) -> Path:
    return suite.files.path("conf", f"{service}.key")


def _listen(url: str) -> dict[str, Any]:
    return {"host": "127.0.0.1", "port": int(url.rstrip("/").rsplit(":", 1)[1])}


def _write(suite: Suite, service: str, settings: Mapping[str, Any]) -> None:
    # Root's, so that no service can rewrite what it, or root's `apply`, is told.
    suite.files.write(f"conf/{service}.toml", tomli_w.dumps(settings), group=service, mode=0o640)

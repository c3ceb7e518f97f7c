"""A login node of the test site: files and sshd by `node-setup --print`, and stock clients."""

import asyncio
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import tomli_w

from headgate.command import Completed, run
from testbed.components import Component, Greets
from testbed.login import FIRST_UID, LAST_UID
from testbed.site import Site

MONTH = "-1h:+30d"
SECONDS = 60.0


def keygen(*arguments: object) -> None:
    """`ssh-keygen`, quietly."""
    subprocess.run(["ssh-keygen", "-q", *(str(word) for word in arguments)], check=True)


def new_key(path: Path) -> Path:
    """A fresh Ed25519 key pair."""
    keygen("-t", "ed25519", "-N", "", "-C", path.name, "-f", path)
    return path


@dataclass(slots=True)
class NodeUnderTest:
    """One sshd of its own at the site, with its files in a folder, and a certificate authority."""

    site: Site
    name: str
    port: int
    folder: Path
    settings: dict[str, Any]
    clients: Path
    serial: int = 100
    more: str = ""

    @classmethod
    def make(
        cls, site: Site, name: str, port: int, clients: Path, **settings: Any
    ) -> "NodeUnderTest":
        """With files as an administrator makes them; sshd is not running yet."""
        folder = site.folder.make(f"nodes/{name}")
        node = cls(
            site=site,
            name=name,
            port=port,
            folder=folder,
            clients=clients,
            settings={
                "realm": site.addresses.realm,
                "uid_first": FIRST_UID,
                "uid_last": LAST_UID,
                "user_ca": str(folder / "user_ca.pub"),
                "revoked_keys": str(folder / "revoked_keys"),
                "principals_program": str(folder / "principals"),
                "principals_folder": str(folder / "principals.d"),
                "session_program": str(site.path("libexec", "headgate-session")),
                "host_certificate": str(folder / "host_key-cert.pub"),
                **settings,
            },
        )
        for key in ("user_ca", "other_ca", "host_ca"):
            new_key(clients / f"{name}-{key}")
        new_key(folder / "host_key")
        node.write("user_ca.pub", node.public("user_ca"))
        keygen("-k", "-f", folder / "revoked_keys")
        node.certify_host("127.0.0.1")
        node.known_hosts()
        node.write("node.toml", tomli_w.dumps(node.settings))
        return node

    def authority(self, name: str) -> Path:
        """The private key of one of the authorities around."""
        return self.clients / f"{self.name}-{name}"

    def public(self, name: str) -> str:
        """An authority's public line."""
        return self.authority(name).with_suffix(".pub").read_text()

    def write(self, name: str, content: str | bytes, mode: int = 0o644) -> Path:
        """One of the node's files, in one step."""
        self.site.folder.write(f"nodes/{self.name}/.new", content, mode=mode)
        return (self.folder / ".new").rename(self.folder / name)

    async def printed(self, part: str) -> str:
        """What `headgate-tokens node-setup --print` says for this node."""
        done = await self.tokens("node-setup", "--print", part, "--node", self.folder / "node.toml")
        return done.checked().stdout.decode()

    async def tokens(self, *words: object) -> Completed:
        """`headgate-tokens` on the node, as root."""
        command = f"{self.site.addresses.venv}/bin/headgate-tokens"
        return await self.site.exec((command, *(str(word) for word in words)), timeout=SECONDS)

    async def check(self, *more: str, **changes: Any) -> dict[str, Any]:
        """`node-setup --check` on the node: its findings by name, and its exit status."""
        settings = {**self.settings, "krl_user": "root", **changes}
        self.write("check.toml", tomli_w.dumps(settings))
        done = await self.tokens(
            *("node-setup", "--check", "--json", "--offline", "--hostname", "127.0.0.1"),
            *("--node", self.folder / "check.toml", "--sshd-config", self.folder / "sshd_config"),
            *more,
        )
        document = msgspec.json.decode(done.stdout)
        assert document["status"] == done.status
        found = {finding["check"]: finding for finding in document["findings"]}
        return {"status": done.status, **found}

    async def start(self) -> None:
        """Run sshd with the printed lines and what a machine's own sshd_config has to say."""
        if self.settings.get("principals") == "files":
            (await self.site.exec(("sh", "-c", await self.printed("principals")))).checked()
        else:
            self.write("principals", await self.printed("principals"), mode=0o755)
        own = (
            f"ListenAddress 127.0.0.1\nPort {self.port}\nPidFile none\n"
            f"HostKey {self.folder}/host_key\nPasswordAuthentication no\nMaxAuthTries 20\n"
        )
        self.write("sshd_config", f"{own}{self.more}\n{await self.printed('sshd')}")
        await self.site.add(
            Component(
                name=f"node-{self.name}",
                argv=("/usr/sbin/sshd", "-D", "-e", "-f", str(self.folder / "sshd_config")),
                ready=Greets(self.port, "SSH-2.0-"),
            )
        )

    async def restart(self) -> None:
        """Have sshd read its files again."""
        await self.site.restart(f"node-{self.name}")

    def certify_host(self, *names: str, valid: str = MONTH, by: str = "host_ca") -> None:
        """A host certificate for sshd's next start."""
        keygen(
            *("-s", self.authority(by), "-h", "-I", self.name, "-n", ",".join(names), "-V", valid),
            self.folder / "host_key.pub",
        )

    def principal(self, account: str) -> str:
        """The name that opens an account."""
        return f"hg:{self.settings['realm']}:{account}"

    def certify(
        self,
        *principals: str,
        valid: str = "-1m:+5m",
        by: str = "user_ca",
        key: Path | None = None,
        options: Sequence[str] = (),
        key_id: str = "v1;sub=alice",
    ) -> Path:
        """A fresh key (or this one) with a certificate of an authority beside it."""
        self.serial += 1
        key = key or new_key(self.clients / f"{self.name}-key{self.serial}")
        named = ("-n", ",".join(principals)) if principals else ()
        flags = [flag for option in ("clear", *options) for flag in ("-O", option)]
        keygen(
            *("-s", self.authority(by), "-I", key_id, *named, "-V", valid, "-z", self.serial),
            *(*flags, key.with_suffix(".pub")),
        )
        return key

    async def ssh(
        self,
        key: Path,
        user: str,
        *words: str,
        program: str = "ssh",
        certificate: Path | None = None,
        env: Mapping[str, str] | None = None,
        **changes: str,
    ) -> Completed:
        """A stock client with a key and its certificate; option names as in ssh_config(5)."""
        flags = {
            "BatchMode": "yes",
            "CertificateFile": str(certificate or f"{key}-cert.pub"),
            "ConnectTimeout": "10",
            "GlobalKnownHostsFile": "/dev/null",
            "IdentitiesOnly": "yes",
            "IdentityFile": str(key),
            "LogLevel": "ERROR",
            "Port": str(self.port),
            "StrictHostKeyChecking": "yes",
            "UserKnownHostsFile": str(self.clients / f"{self.name}-known_hosts"),
            **changes,
        }
        argv = [part for name, value in flags.items() for part in ("-o", f"{name}={value}")]
        target = [f"{user}@127.0.0.1"] if user else []
        environment = {**os.environ, **(env or {})}
        return await run(
            (program, "-F", "none", *argv, *target, *words), timeout=60, env=environment
        )

    def known_hosts(self, line: str = "") -> Path:
        """What a client knows: the host authority, and no single key."""
        path = self.clients / f"{self.name}-known_hosts"
        path.write_text(line or f"@cert-authority [127.0.0.1]:{self.port} {self.public('host_ca')}")
        return path

    async def opens(self, key: Path, user: str, **changes: Any) -> bool:
        """Whether a key and its certificate log in, and as the one who was named."""
        done = await self.ssh(key, user, "id", "-un", **changes)
        assert done.status in {0, 255}, done
        assert done.stdout == (f"{user}\n".encode() if done.status == 0 else b""), done
        return done.status == 0

    async def revoke(self, *lines: str) -> None:
        """Install a revocation list with these lines (ssh-keygen's) of the user CA."""
        spec = self.clients / f"{self.name}-spec"
        await asyncio.to_thread(spec.write_text, "".join(f"{line}\n" for line in lines))
        made = self.clients / f"{self.name}-krl"
        public = f"{self.authority('user_ca')}.pub"
        await asyncio.to_thread(keygen, "-k", "-f", made, "-s", public, spec)
        self.write("revoked_keys", made.read_bytes())

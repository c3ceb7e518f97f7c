"""A syslog server over TLS (RFC 5425), and the certificates around it."""

import asyncio
import contextlib
import datetime as dt
import ipaddress
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class Ca:
    """A certificate authority that writes what it makes into its folder."""

    folder: Path
    key: ec.EllipticCurvePrivateKey
    name: x509.Name

    @classmethod
    def make(cls, folder: Path, name: str = "authority") -> "Ca":
        """With its own certificate in `ca.pem`."""
        folder.mkdir(parents=True, exist_ok=True)
        named = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        one = cls(folder, ec.generate_private_key(ec.SECP256R1()), named)
        made = one._signed(named, one.key, ca=True)
        (folder / "ca.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
        return one

    @property
    def file(self) -> Path:
        """Its certificate."""
        return self.folder / "ca.pem"

    def issue(self, name: str, address: str = "127.0.0.1") -> tuple[Path, Path]:
        """A certificate for an address, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._signed(subject, key, ca=False, address=address)
        paths = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
        paths[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        paths[1].chmod(0o600)
        return paths

    def _signed(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, *, ca: bool, address: str = ""
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(minutes=5))
            .not_valid_after(now + dt.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if address:
            names = [x509.IPAddress(ipaddress.ip_address(address))]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self.key, hashes.SHA256())


@dataclass(slots=True)
class TlsServer:
    """What came, and from whom."""

    port: int = 0
    messages: list[bytes] = field(default_factory=list)
    clients: list[str] = field(default_factory=list)
    reads: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def address(self) -> str:
        """How the settings name it."""
        return f"tls://127.0.0.1:{self.port}"

    @contextlib.asynccontextmanager
    async def listening(
        self, ca: Ca, *, trusts: Ca | None = None, address: str = "127.0.0.1"
    ) -> AsyncIterator["TlsServer"]:
        """Take messages until the end; `trusts`: only from clients with its certificates."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*ca.issue(f"server-{address}", address))
        if trusts is not None:
            context.load_verify_locations(trusts.file)
            context.verify_mode = ssl.CERT_REQUIRED
        writers: list[asyncio.StreamWriter] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            peer = writer.get_extra_info("peercert") or {}
            self.clients += [value for part in peer.get("subject", ()) for _, value in part]
            await self.reads.wait()
            with contextlib.suppress(asyncio.IncompleteReadError, OSError):
                while True:
                    size = int(await reader.readuntil(b" "))
                    self.messages.append(await reader.readexactly(size))

        self.reads.set()
        server = await asyncio.start_server(serve, "127.0.0.1", self.port, ssl=context)
        self.port = server.sockets[0].getsockname()[1]
        yield self
        server.close()
        for writer in writers:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        await server.wait_closed()

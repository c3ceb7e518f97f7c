"""A node's folder for the revocation list, and a translator that says whatever a test wants."""

import asyncio
import contextlib
import datetime as dt
import ipaddress
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from headgate.command import Completed, run
from token_translator import krl_fetch

PROGRAM = Path(krl_fetch.__file__)


@dataclass(slots=True)
class Translator:
    """A server that says exactly these bytes to each question, and keeps the questions."""

    port: int = 0
    scheme: str = "http"
    says: bytes = b""
    asked: list[bytes] = field(default_factory=list)
    pause: float = 0.0

    @property
    def url(self) -> str:
        """Where its list is."""
        return f"{self.scheme}://127.0.0.1:{self.port}/v1/krl"

    def serves(self, body: bytes, etag: str = '"one"', *headers: str) -> None:
        """A list from now on."""
        lines = ("HTTP/1.1 200 OK", f"Content-Length: {len(body)}", f"ETag: {etag}", *headers)
        self.says = "".join(f"{line}\r\n" for line in lines).encode("latin-1") + b"\r\n" + body

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one question."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            self.asked.append(await reader.readuntil(b"\r\n\r\n"))
            if self.pause:
                for byte in self.says:
                    writer.write(bytes([byte]))
                    await writer.drain()
                    await asyncio.sleep(self.pause)
            writer.write(self.says)
            await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def served(tls: ssl.SSLContext | None = None) -> AsyncIterator[Translator]:
    """A running one."""
    one = Translator(scheme="https" if tls else "http")
    server = await asyncio.start_server(one.talk, "127.0.0.1", 0, ssl=tls)
    async with server:
        one.port = server.sockets[0].getsockname()[1]
        yield one


@dataclass(frozen=True, slots=True)
class Node:
    """A node's folder for the list."""

    folder: Path

    @property
    def file(self) -> Path:
        """What sshd's RevokedKeys names."""
        return self.folder / "krl"

    def status(self) -> dict[str, object]:
        """What monitoring reads."""
        document: dict[str, object] = json.loads((self.folder / "krl.status").read_text())
        return document

    async def fetch(self, url: str, *more: str, signed: bool = False) -> Completed:
        """One turn of the timer; `signed`: believing `user_ca.pub` in the node's folder alone."""
        trusted = ("--user-ca", str(self.folder / "user_ca.pub"))
        argv = (
            "/usr/bin/python3",
            "-I",
            str(PROGRAM),
            "--url",
            url,
            "--file",
            str(self.file),
            *(trusted if signed else ("--no-signature",)),
            *more,
        )
        return await run(argv, timeout=30)


def certificate(folder: Path) -> Path:
    """A key and a certificate for 127.0.0.1 that signs itself, in one PEM file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "translator")])
    now = dt.datetime.now(dt.UTC)

    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "tls.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path

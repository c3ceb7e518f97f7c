"""The key revocation list of many certificates: how long it takes to build, and its size."""

import random
import time
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bench.table import ROUNDS, Row, milliseconds
from headgate.command import run
from headgate.settings import command_environment
from testbed.site import Site
from token_translator.signer.krl import RevocationList
from token_translator.signer.revocations import Now

REVOKED = 10_000
AMONG = 15_000
"""Serials are counted up: of so many issued in a row so many are revoked."""


async def rows(site: Site, folder: Path) -> list[Row]:
    """One row; the floor is `ssh-keygen -k`, which writes the same list."""
    del site
    chance = random.Random(1)  # noqa: S311 - the same serials in each run
    serials = sorted(chance.sample(range(1, AMONG + 1), REVOKED))
    key = Ed25519PrivateKey.generate().public_key()
    authority = key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    (folder / "ca.pub").write_text(f"{authority}\n", encoding="ascii")
    (folder / "spec").write_text("".join(f"serial: {n}\n" for n in serials), encoding="ascii")
    now = Now(1, tuple((n, n) for n in serials), (), ())
    ours: list[float] = []
    bare: list[float] = []
    size = 0
    for _ in range(ROUNDS):
        bare.append(await _floor(folder))
        began = time.perf_counter()
        size = len(RevocationList.of(now, [authority]).encode())
        ours.append(time.perf_counter() - began)
    least = (folder / "krl").stat().st_size
    return [
        Row(
            what=f"revocation list of {REVOKED} serials among {AMONG}, built",
            floor="`ssh-keygen -k` of the same serials",
            ratios=[own / floor for own, floor in zip(ours, bare, strict=True)],
            budget=None,
            words=f"{milliseconds(ours)} to {milliseconds(bare)}; {size} bytes to {least}",
        )
    ]


async def _floor(folder: Path) -> float:
    argv = ["ssh-keygen", "-q", "-k", "-f", str(folder / "krl"), "-s", str(folder / "ca.pub")]
    began = time.perf_counter()
    done = await run((*argv, str(folder / "spec")), timeout=60, env=command_environment())
    done.checked()
    return time.perf_counter() - began

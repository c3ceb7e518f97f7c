"""The floors: the least that could do the same work, each a process of its own."""

import argparse
import asyncio
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from joserfc import jwk

from headgate.signatures import verified

SIGNED_BYTES = 400
"""About what a certificate's signature covers."""


def main(argv: Sequence[str] | None = None) -> None:
    """Serve one floor until killed."""
    parser = argparse.ArgumentParser(prog="python -m bench.floors", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--keys", type=Path, required=True, help="the issuer's JWK set")
    parser.add_argument("--database", type=Path, required=True)
    asyncio.run(_serve(parser.parse_args(argv)))


async def _serve(options: argparse.Namespace) -> None:
    app = web.Application()
    app.router.add_post("/v1/certificates", _certificate(options.keys, options.database))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", options.port).start()
    await asyncio.Event().wait()


def _certificate(keys: Path, path: Path) -> Handler:
    """RS256 verification, an Ed25519 signature and one durable insert for each POST."""
    issuer = jwk.KeySet.import_key_set(json.loads(keys.read_text(encoding="utf-8")))
    signer = Ed25519PrivateKey.generate()
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE ledger (entry BLOB NOT NULL)")

    async def handler(request: web.Request) -> web.Response:
        token = request.headers["Authorization"].removeprefix("Bearer ")
        verified(token, issuer.keys[0], algorithms=("RS256",))
        body = await request.read()
        signature = signer.sign(body.ljust(SIGNED_BYTES))
        database.execute("INSERT INTO ledger (entry) VALUES (?)", (body + signature,))
        return web.json_response({"certificate": signature.hex()}, status=201)

    return handler


if __name__ == "__main__":
    main()

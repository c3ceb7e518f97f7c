"""What anybody may fetch: authority keys, revocation list, health."""

import asyncio
import subprocess
from pathlib import Path
from typing import Any

from tests.service.token_translator.krl_node import Node


async def test_authority_keys_as_json_and_text(site: Any) -> None:
    """Both authorities as JSON; as plain text the lines for TrustedUserCAKeys alone."""
    known = await (await site.client.get("/v1/ca")).json()
    assert len(known["user_ca"]) == len(known["host_ca"]) == 1
    assert known["user_ca"] != known["host_ca"]
    response = await site.client.get("/v1/ca", headers={"Accept": "text/plain"})
    assert await response.text() == known["user_ca"][0] + "\n"
    assert response.content_type == "text/plain"


async def test_the_revocation_list_is_one(site: Any, key_line: str, tmp_path: Path) -> None:
    """OpenSSH reads it, it revokes nobody, and its ETag spares the next fetch."""
    response = await site.client.get("/v1/krl")
    (tmp_path / "krl").write_bytes(await response.read())
    (tmp_path / "key.pub").write_text(key_line)
    argv = ["ssh-keygen", "-Q", "-f", str(tmp_path / "krl"), str(tmp_path / "key.pub")]
    shown = await asyncio.to_thread(subprocess.check_output, argv, text=True)
    assert shown.strip().endswith("ok")
    again = await site.client.get("/v1/krl", headers={"If-None-Match": response.headers["ETag"]})
    assert again.status == 304
    assert await again.read() == b""
    other = await site.client.get("/v1/krl", headers={"If-None-Match": '"other"'})
    assert other.status == 200


async def test_a_node_believes_it(site: Any, tmp_path: Path) -> None:
    """With what `GET /v1/ca` gives as TrustedUserCAKeys, the first time and unchanged."""
    node = Node(tmp_path / "node")
    node.folder.mkdir()
    answer = await site.client.get("/v1/ca", headers={"Accept": "text/plain"})
    (node.folder / "user_ca.pub").write_text(await answer.text())
    for _ in range(2):
        done = await node.fetch(f"{site.url}/v1/krl", signed=True)
        assert (done.status, done.stderr, node.status()["signed"]) == (0, b"", True)


async def test_health(start: Any, make_signer: Any) -> None:
    """Alive is one thing; ready needs signer, registry and database."""
    async with start(own=make_signer()) as site:
        assert (await site.client.get("/livez")).status == 200
        assert (await site.client.get("/readyz")).status == 200
        await asyncio.to_thread(site.signer.stop)
        response = await site.client.get("/readyz?verbose")
        assert response.status == 503
        assert "signer: The signer cannot be reached." in await response.text()
        assert (await site.client.get("/livez")).status == 200


async def test_a_signer_that_is_away_and_comes_back(
    start: Any, make_signer: Any, key_line: str
) -> None:
    """503 with Retry-After while it is away, certificates again when it is back."""
    async with start(own=make_signer()) as site:
        token, body = site.issuer.token(), {"public_key": key_line}
        first = await (await site.post("/v1/certificates", body, token=token)).json()
        await asyncio.to_thread(site.signer.kill)
        response = await site.post("/v1/certificates", body, token=token)
        assert (response.status, (await response.json())["code"]) == (503, "signer_away")
        assert "Retry-After" in response.headers
        await asyncio.to_thread(site.signer.start)
        second = await (await site.post("/v1/certificates", body, token=token)).json()
        assert second["serial"] > first["serial"]

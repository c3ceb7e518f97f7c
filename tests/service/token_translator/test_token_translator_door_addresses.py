"""A rule's networks where a login service stands in between: they are the client's."""

from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import ssh

PATH = "/v1/certificates"
DOOR = "198.51.100.1"
INSIDE = """
[[rules]]
name = "inside"
profiles = ["person"]
source_addresses = ["192.0.2.0/24"]
"""


async def asked(site: Any, key_line: str, **more: str) -> tuple[int, dict[str, Any]]:
    """What the front door hears when it asks for alice."""
    response = await site.post(
        PATH,
        {"public_key": key_line, **more},
        token=site.issuer.token(),
        peer=site.peer("frontdoor"),
    )
    return response.status, await response.json()


async def test_the_clients_address_counts_and_the_doors_is_in_the_certificate(
    start: Any, key_line: str
) -> None:
    """From inside one comes in with a certificate for the door; from elsewhere nobody does."""
    async with start(INSIDE) as site:
        status, answer = await asked(
            site, key_line, client_address="192.0.2.7", source_address=DOOR
        )
        assert status == 201, answer
        certificate = ssh.load_ssh_public_identity(answer["certificate"].encode())
        assert certificate.critical_options == {b"source-address": f"{DOOR}/32".encode()}
        for more in ({"client_address": "203.0.113.9"}, {}, {"client_address": DOOR}):
            status, answer = await asked(site, key_line, source_address=DOOR, **more)
            assert (status, answer["code"]) == (403, "address_refused")
            assert "192.0.2.0/24" in answer["detail"]


async def test_a_door_inside_the_networks_lets_nobody_in_from_outside(
    start: Any, key_line: str
) -> None:
    """That the door itself is at a good address makes its visitors' no better."""
    async with start(INSIDE) as site:
        status, answer = await asked(
            site, key_line, client_address="203.0.113.9", source_address="192.0.2.1"
        )
        assert (status, answer["code"]) == (403, "address_refused")


@pytest.mark.parametrize("peer", ["", "gateway"])
async def test_only_a_login_service_names_a_client(site: Any, key_line: str, peer: str) -> None:
    """Nobody else's word about where somebody comes from is taken."""
    body = {"public_key": key_line, "client_address": "192.0.2.7"}
    if peer:
        body["profile"] = "session"
    more = {"peer": site.peer(peer)} if peer else {}
    response = await site.post(PATH, body, token=site.issuer.token(), **more)
    document = await response.json()
    assert response.status == 400
    assert [fault["pointer"] for fault in document["errors"]] == ["/client_address"]

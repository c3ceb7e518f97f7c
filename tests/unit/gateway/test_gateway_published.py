"""What the gateway tells anybody about SSH: nothing that only its own machine can reach."""

from typing import Any

import msgspec
import pytest

from gateway.settings import LoginNodeSettings, Settings

MINIMAL: dict[str, Any] = {
    "url": "https://hpc.example.org",
    "instance": "gateway",
    "peer_key": "/key",
    "database": "sqlite+aiosqlite://",
    "issuers": [{"url": "https://iam.example.org/"}],
    "token_translator": {"url": "https://tokens.example.org"},
    "registry": {"url": "http://127.0.0.1:8082"},
    "clusters": [
        {"name": "a", "realm": "main", "ssh": {"host": "login.example.org", "port": 2222}},
        {"name": "b", "realm": "main", "ssh": {"host": "login.example.org", "port": 2222}},
    ],
}


def settings(**changes: Any) -> Settings:
    """Settings with these changes."""
    return msgspec.convert({**MINIMAL, **changes}, Settings)


def test_the_gateways_own_addresses_are_told_once():
    """Two clusters with one login node have one."""
    told = settings()
    assert told.published_token_translator() == "https://tokens.example.org"
    node = LoginNodeSettings(host="login.example.org", port=2222, realm="main")
    assert told.published_login_nodes() == (node,)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.9.9.9"])
def test_an_address_of_this_machine_is_not_told_to_others(host: str):
    """A person's own machine has such an address, too: a token would go there."""
    clusters = [{"name": "a", "realm": "main", "ssh": {"host": host.strip("[]")}}]
    internal = {"token_translator": {"url": f"http://{host}:8081"}, "clusters": clusters}
    told = settings(**internal)
    assert told.published_login_nodes() == ()
    assert told.published_token_translator() == ""
    here = settings(url="http://127.0.0.1:8080", **internal)
    assert here.published_token_translator() == f"http://{host}:8081"


def test_what_an_administrator_says_is_told():
    """The section `people` wins."""
    told = settings(
        people={
            "token_translator": "https://public.example.org",
            "login_nodes": [{"host": "public.example.org", "realm": "main"}],
        }
    )
    assert told.published_token_translator() == "https://public.example.org"
    assert [node.host for node in told.published_login_nodes()] == ["public.example.org"]

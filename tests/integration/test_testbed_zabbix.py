"""The site's Zabbix: it takes values from a sender and gives them back through its API."""

from typing import Any

import aiohttp
import pytest
from zabbix_utils import AsyncSender, ItemValue

from testbed.site import Site

pytestmark = pytest.mark.site


async def call(url: str, method: str, params: Any, auth: str | None = None) -> Any:
    """One JSON-RPC call of Zabbix 6.0's API."""
    body = {"jsonrpc": "2.0", "method": method, "params": params, "id": 1, "auth": auth}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/api_jsonrpc.php", json=body) as response,
    ):
        answer = await response.json(content_type=None)
    assert "error" not in answer, answer
    return answer["result"]


async def test_a_value_that_was_sent_is_read_back(site: Site):
    """A trapper item made through the API takes a value, and history.get shows it."""
    zabbix = await site.start_zabbix()
    assert await site.start_zabbix() == zabbix
    user = {"username": zabbix.user, "password": zabbix.password}
    auth = await call(zabbix.url, "user.login", user)
    group = await call(zabbix.url, "hostgroup.create", {"name": "testbed"}, auth)
    groups = [{"groupid": group["groupids"][0]}]
    host = await call(zabbix.url, "host.create", {"host": "h", "groups": groups}, auth)
    item = {"hostid": host["hostids"][0], "name": "i", "key_": "i", "type": 2, "value_type": 3}
    made = await call(zabbix.url, "item.create", item, auth)

    sender = AsyncSender(server=zabbix.trapper_host, port=zabbix.trapper_port)
    while (await sender.send([ItemValue("h", "i", "42")])).processed == 0:
        pass  # the server knows a new item at its next look, a second later

    asked = {"itemids": made["itemids"], "history": 3, "output": "extend"}
    while not (rows := await call(zabbix.url, "history.get", asked, auth)):
        pass  # it writes what it took within a second
    assert {row["value"] for row in rows} == {"42"}

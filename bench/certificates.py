"""From a token to a certificate over HTTP: how long one takes, and how many there are a second."""

import asyncio
import contextlib
import json
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bench.table import ROUNDS, Row, milliseconds
from testbed.site import Site
from testbed.waiting import until

PATH = "/v1/certificates"
ONE_BY_ONE = 60
"""Requests of one round, each after the one before."""
TOGETHER = 600
CLIENTS = 16

Post = Callable[[], Awaitable[None]]


async def rows(site: Site, folder: Path) -> list[Row]:
    """Both rows; `folder` is for the floor's database and is on the site's file system."""
    token = await site.token("alice")
    url = str(site.addresses.token_translator)
    async with (
        aiohttp.ClientSession() as session,
        _floor(session, str(site.addresses.issuer), folder) as floor,
    ):
        ours = _poster(session, url, token)
        bare = _poster(session, floor, token)
        return [await _latency(ours, bare), await _rate(site, ours, bare)]


async def _latency(ours: Post, bare: Post) -> Row:
    times: dict[str, list[float]] = {"ours": [], "bare": []}
    ratios = []
    for turn in range(ROUNDS + 1):
        own, least = await _p50(ours), await _p50(bare)
        if turn:  # the first round warms up
            times["ours"].append(own)
            times["bare"].append(least)
            ratios.append(own / least)
    return Row(
        what="token → certificate over HTTP, p50",
        floor="bare aiohttp POST + RS256 verify + ed25519 sign + one durable insert",
        ratios=ratios,
        budget=1.5,
        words=f"{milliseconds(times['ours'])} to {milliseconds(times['bare'])}",
    )


async def _rate(site: Site, ours: Post, bare: Post) -> Row:
    ratios, rates, cores = [], [], []
    for _ in range(ROUNDS):
        least = await _per_second(bare)
        before = await _cpu_seconds(site)
        rate = await _per_second(ours)
        used = await _cpu_seconds(site) - before
        rates.append(rate)
        cores.append(TOGETHER / used)
        ratios.append(rate / least)
    rates.sort()
    cores.sort()
    middle = ROUNDS // 2
    return Row(
        what=f"certificates per second, {CLIENTS} clients",
        floor="the same as above, its rate",
        ratios=ratios,
        budget=None,
        words=f"{rates[middle]:.0f}/s; {cores[middle]:.0f} per second of one core",
    )


async def _p50(post: Post) -> float:
    times = []
    for _ in range(ONE_BY_ONE):
        began = time.perf_counter()
        await post()
        times.append(time.perf_counter() - began)
    return sorted(times)[ONE_BY_ONE // 2]


async def _per_second(post: Post) -> float:
    waiting = iter(range(TOGETHER))

    async def client() -> None:
        for _ in waiting:
            await post()

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(client())
    return TOGETHER / (time.perf_counter() - began)


async def _cpu_seconds(site: Site) -> float:
    """What the translator and the signer have used of processors until now."""
    components = await site.status()
    done = await site.exec(("getconf", "CLK_TCK"))
    ticks = 0
    for name in ("tokens", "signer"):
        stat = await site.exec(("cat", f"/proc/{components[name].pid}/stat"))
        fields = stat.checked().stdout.decode().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])  # utime and stime, proc(5)
    return ticks / int(done.checked().stdout)


def _poster(session: aiohttp.ClientSession, url: str, token: str) -> Post:
    """One request, with a key made before: making keys is the client's work."""
    key = Ed25519PrivateKey.generate().public_key()
    line = key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    headers = {"Authorization": f"Bearer {token}"}

    async def post() -> None:
        async with session.post(url + PATH, json={"public_key": line}, headers=headers) as answer:
            await answer.read()
            answer.raise_for_status()

    return post


@contextlib.asynccontextmanager
async def _floor(session: aiohttp.ClientSession, issuer: str, folder: Path) -> AsyncIterator[str]:
    """The floor's server while the context is open; its address."""
    async with session.get(f"{issuer}jwk") as answer:
        (folder / "keys.json").write_text(json.dumps(await answer.json()), encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    options = ("--port", str(port), "--keys", str(folder / "keys.json"))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.floors", *options),
        *("--database", str(folder / "floor.db")),
    )
    try:
        await until(lambda: _answers(port), seconds=20)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()


def _answers(port: int) -> bool:
    with socket.socket() as other:
        return other.connect_ex(("127.0.0.1", port)) == 0

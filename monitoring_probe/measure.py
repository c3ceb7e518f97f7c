"""Asking: four Slurm commands and each service's readiness, side by side, each with a deadline."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from http import HTTPStatus
from typing import TypeVar

import aiohttp

from headgate.clock import Clock
from headgate.slurm.model import ClusterReader, ClusterUnavailable
from monitoring_probe.measurement import Answer, Backlog, Measurement, Readiness, Service
from monitoring_probe.settings import ServiceSettings

T = TypeVar("T")

_REASON_BYTES = 2000


async def measure(
    reader: ClusterReader,
    services: Sequence[ServiceSettings],
    clock: Clock,
    *,
    backlog: Backlog,
) -> Measurement:
    """One measurement. What fails is in it as a failure: nothing is raised, nothing becomes 0."""
    taken_at = clock.now()
    began = clock.monotonic()
    controllers, nodes, partitions, jobs, found = await asyncio.gather(
        _ask(reader.controllers(), clock),
        _ask(reader.nodes(), clock),
        _ask(reader.partitions(), clock),
        _ask(reader.jobs(), clock),
        ask_services(services, clock),
    )
    return Measurement(
        taken_at,
        controllers,
        nodes,
        partitions,
        jobs,
        found,
        backlog,
        clock.monotonic() - began,
    )


async def _ask(question: Awaitable[T], clock: Clock) -> Answer[T]:
    began = clock.monotonic()
    try:
        value = await question
    except ClusterUnavailable as error:
        words = " ".join(str(error).split()) or "the cluster could not be asked"
        return Answer(None, clock.monotonic() - began, words)
    return Answer(value, clock.monotonic() - began)


async def ask_services(services: Sequence[ServiceSettings], clock: Clock) -> Mapping[str, Service]:
    """The readiness of each service by name."""
    if not services:
        return {}
    async with aiohttp.ClientSession() as session:
        answers = await asyncio.gather(*(_readiness(session, one, clock) for one in services))
    return {one.name: answer for one, answer in zip(services, answers, strict=True)}


async def _readiness(
    session: aiohttp.ClientSession, service: ServiceSettings, clock: Clock
) -> Service:
    began = clock.monotonic()
    url = service.url.rstrip("/") + "/readyz?verbose"
    timeout = aiohttp.ClientTimeout(total=service.timeout)
    try:
        async with session.get(url, timeout=timeout, allow_redirects=False) as response:
            body = await response.content.read(_REASON_BYTES)
            seconds = clock.monotonic() - began
            if response.status == HTTPStatus.OK:
                return Service(Readiness.READY, "ready", seconds, service.slow)
            words = f"answers {response.status}: {_faults(body)}"
            return Service(Readiness.NOT_READY, words.rstrip(": "), seconds, service.slow)
    except TimeoutError:
        return Service(Readiness.DOWN, f"no answer within {service.timeout:g} s")
    except aiohttp.ClientConnectorDNSError:
        return Service(Readiness.UNMEASURED, "its name does not resolve from here")
    except aiohttp.ClientError as error:
        return Service(Readiness.DOWN, f"cannot be reached: {type(error).__name__}")


def _faults(body: bytes) -> str:
    """The lines of a readiness answer that do not end in `ok`, on one line."""
    lines = body.decode(errors="replace").splitlines()
    return "; ".join(line.strip() for line in lines if line.strip() and not line.endswith(": ok"))

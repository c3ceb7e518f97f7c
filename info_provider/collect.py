"""Reading a cluster once: each bulk query a single time, all of them or none."""

import asyncio
from collections.abc import Mapping, Sequence
from http import HTTPStatus

import aiohttp

from headgate.clock import Clock
from headgate.slurm.model import ClusterReader, ClusterUnavailable
from info_provider.settings import EndpointSettings
from info_provider.snapshot import Health, Snapshot


class CannotPublish(Exception):  # noqa: N818 - a condition, in the words of the operator
    """What was read is no base for publishing; the sentence says what is missing or wrong."""


async def collect(
    reader: ClusterReader,
    clock: Clock,
    *,
    expected_cluster: str = "",
    endpoints: Sequence[EndpointSettings] = (),
) -> Snapshot:
    """Everything that is published about the cluster, from four queries to slurmctld.

    They run side by side: what is used and who uses it should be of one moment.

    Raises:
        CannotPublish: a query failed, or the answer is of another cluster or of an empty one.
    """
    taken_at = clock.now()
    try:
        async with asyncio.TaskGroup() as group:
            configuration = group.create_task(reader.configuration())
            partitions = group.create_task(reader.partitions())
            nodes = group.create_task(reader.nodes())
            jobs = group.create_task(reader.jobs())
            health = group.create_task(ask_health(endpoints))
    except ExceptionGroup as failures:
        unavailable, bugs = failures.split(ClusterUnavailable)
        if unavailable is None or bugs is not None:
            raise
        raise CannotPublish(_first_line(unavailable)) from failures
    snapshot = Snapshot(
        taken_at,
        configuration.result(),
        partitions.result(),
        nodes.result(),
        jobs.result(),
        health.result(),
    )
    _check(snapshot, expected_cluster)
    return snapshot


def _first_line(error: ExceptionGroup[ClusterUnavailable]) -> str:
    first: BaseException = error
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return " ".join(str(first).split()) or type(first).__name__


def _check(snapshot: Snapshot, expected_cluster: str) -> None:
    """Refuse what would make a whole site vanish from a catalogue, or lie about it."""
    cluster = snapshot.configuration.cluster
    if expected_cluster and cluster != expected_cluster:
        raise CannotPublish(f"the cluster calls itself {cluster!r}, not {expected_cluster!r}")
    if not snapshot.partitions:
        raise CannotPublish("Slurm reports no partition")
    if not any(node.state.installed for node in snapshot.nodes):
        raise CannotPublish("Slurm reports no node")


async def ask_health(endpoints: Sequence[EndpointSettings]) -> Mapping[str, Health]:
    """What each endpoint's health URL says; a service that is down is an answer, not an error."""
    asked = [endpoint for endpoint in endpoints if endpoint.health]
    if not asked:
        return {}
    async with aiohttp.ClientSession() as session:
        answers = await asyncio.gather(*(_ask(session, endpoint) for endpoint in asked))
    return {endpoint.url: answer for endpoint, answer in zip(asked, answers, strict=True)}


async def _ask(session: aiohttp.ClientSession, endpoint: EndpointSettings) -> Health:
    timeout = aiohttp.ClientTimeout(total=endpoint.health_timeout)
    try:
        async with session.get(endpoint.health, timeout=timeout, allow_redirects=False) as response:
            if response.status == HTTPStatus.OK:
                return Health("ok", "ready")
            return Health("critical", f"answers {response.status} {response.reason}")
    except TimeoutError:
        return Health("critical", f"no answer within {endpoint.health_timeout:g} s")
    except aiohttp.ClientConnectorDNSError:
        return Health("unknown", "its name does not resolve from here")
    except aiohttp.ClientError as error:
        return Health("critical", f"cannot be reached: {type(error).__name__}")

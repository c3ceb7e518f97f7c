"""What an administrator says about the site that Slurm does not know."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from headgate.settings import Section, SettingsError, load

Quality = Literal["development", "testing", "pre-production", "production"]
Serving = Literal["production", "draining", "queueing", "closed"]
ContactType = Literal["general", "security", "sysadmin", "usersupport"]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Text = Annotated[str, msgspec.Meta(min_length=1)]


class MemorySettings(Section, frozen=True):
    """The simulated cluster's socket, for the embedded site."""

    socket: Text


class SlurmSettings(Section, frozen=True):
    """Which cluster is read: `conf` is its slurm.conf (empty: Slurm's own default).

    `cluster`, if set, must be the name the cluster gives itself: a guard against reading another.
    `timeout` is for one query, in seconds. `memory` is a simulated cluster instead.
    """

    conf: str = ""
    cluster: str = ""
    timeout: Seconds = 60.0
    memory: MemorySettings | None = None


class DomainSettings(Section, frozen=True):
    """The administrative domain; `id` is what the infrastructure calls the site."""

    id: Text
    description: str = ""
    www: tuple[str, ...] = ()
    owner: tuple[str, ...] = ()


class LocationSettings(Section, frozen=True):
    """Where the machines stand; degrees north and east."""

    name: Text
    address: str = ""
    place: str = ""
    country: str = ""
    postal_code: str = ""
    latitude: Annotated[float, msgspec.Meta(ge=-90, le=90)] | None = None
    longitude: Annotated[float, msgspec.Meta(ge=-180, le=180)] | None = None


class ContactSettings(Section, frozen=True):
    """Somebody to write to: `detail` is a URI, `mailto:…` as a rule."""

    detail: Text
    type: ContactType = "usersupport"


class ServiceSettings(Section, frozen=True):
    """The cluster as a service. `name` is its DNS-like name, the last part of every ID."""

    name: Text
    type: Text = "headgate.gateway"
    quality_level: Quality = "production"


class EndpointSettings(Section, frozen=True):
    """An interface clients call. `health` is a URL that answers 200 when the interface serves."""

    url: Text
    interface_name: Text = "headgate.jobs"
    interface_version: str = "1"
    technology: str = "webservice"
    capability: tuple[str, ...] = (
        "executionmanagement.jobcreation",
        "executionmanagement.jobmanagement",
    )
    quality_level: Quality = "production"
    serving_state: Serving = "production"
    implementation_name: str = "headgate"
    implementation_version: str = ""
    health: str = ""
    health_timeout: Seconds = 5.0


class NodeSettings(Section, frozen=True):
    """What all nodes have in common and Slurm does not report.

    `features` are those Slurm features that tell kinds of nodes apart.
    """

    os_name: str = ""
    os_version: str = ""
    cpu_vendor: str = ""
    cpu_model: str = ""
    cpu_clock_speed: int | None = None
    connectivity_in: bool = False
    connectivity_out: bool = False
    network_info: tuple[str, ...] = ()
    features: tuple[str, ...] = ()


class GpuSettings(Section, frozen=True):
    """What a GRES type of this site means, where the built-in table does not know it."""

    model: str = ""
    vendor: str = ""
    memory_mb: int | None = None


class VoSettings(Section, frozen=True):
    """A virtual organisation and the Slurm accounts, groups and QOS its members come with."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.-]+$")]
    accounts: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()


class PublishSettings(Section, frozen=True):
    """What is published, where (empty: standard output) and how long a reader may trust it.

    `validity` is in seconds and should outlast two runs. Partitions that Slurm hides, or keeps
    for root, are published only on request.
    """

    output: str = ""
    validity: Annotated[int, msgspec.Meta(ge=60)] = 1800
    accelerator_names: Literal["v0.5", "2020"] = "v0.5"
    hidden: bool = False
    root_only: bool = False
    partitions: tuple[str, ...] = ()
    deadline: Seconds = 120.0


class InfoSettings(Section, frozen=True):
    """The whole file."""

    domain: DomainSettings
    service: ServiceSettings
    location: LocationSettings | None = None
    contact: tuple[ContactSettings, ...] = ()
    endpoint: tuple[EndpointSettings, ...] = ()
    slurm: SlurmSettings = SlurmSettings()
    node: NodeSettings = NodeSettings()
    gpu: dict[str, GpuSettings] = msgspec.field(default_factory=dict)
    vo: tuple[VoSettings, ...] = ()
    publish: PublishSettings = PublishSettings()


def read(path: Path) -> InfoSettings:
    """The settings in `path`.

    Raises:
        SettingsError: unreadable, unknown keys, wrong types, or an address that is none.
    """
    settings = load(path, InfoSettings)
    for endpoint in settings.endpoint:
        if endpoint.health and not endpoint.health.startswith(("http://", "https://")):
            raise SettingsError(f"{path}: endpoint.health: {endpoint.health} is no http(s) URL")
    return settings

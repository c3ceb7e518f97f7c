"""GLUE 2.1 entities as frozen values, in the specification's own words and units.

Attributes are GFD.147 (GLUE 2.0) with the accelerator classes of GLUE 2.1, draft v0.5; times are
seconds, memory is MB, dates are UTC. What is None or empty is not published. `associations` maps
a role to the ID, or IDs, of the entities it names (GFD.219).
"""

from collections.abc import Mapping

import msgspec

UNLIMITED = 999_999_999
"""GLUE has no word for "no limit"; its readers know this UInt32 placeholder."""

UNDEFINED = "UNDEFINEDVALUE"
"""Placeholder for a string that the model requires and nobody knows (GFD.147, appendix A)."""

Associations = Mapping[str, str | tuple[str, ...] | None]

_SPECIAL = {
    "id": "ID",
    "cpu": "CPU",
    "cpus": "CPUs",
    "os": "OS",
    "url": "URL",
    "www": "WWW",
    "ca": "CA",
}


def attribute(field: str) -> str:
    """The GLUE spelling of a field: `total_logical_cpus` is `TotalLogicalCPUs`."""
    return "".join(_SPECIAL.get(word, word.capitalize()) for word in field.split("_"))


class Entity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename=attribute):
    """What every entity has: a stable ID, when it was observed and for how long that holds."""

    id: str
    name: str
    creation_time: str
    validity: int
    other_info: tuple[str, ...] = ()
    extension: Mapping[str, str] = {}
    associations: Associations = {}


class AdminDomain(Entity, frozen=True):
    """The organisation that runs the service."""

    description: str = ""
    www: tuple[str, ...] = ()
    distributed: bool | None = None
    owner: tuple[str, ...] = ()


class Location(Entity, frozen=True):
    """Where the domain's machines stand; latitude north, longitude east, in degrees."""

    address: str = ""
    place: str = ""
    country: str = ""
    postal_code: str = ""
    latitude: float | None = None
    longitude: float | None = None


class Contact(Entity, frozen=True):
    """Whom to write to; `type` is general, security, sysadmin or usersupport."""

    detail: str
    type: str


class ComputingService(Entity, frozen=True):
    """The cluster as a service; its own job counts are those of the grid layer, and left out."""

    type: str
    quality_level: str
    capability: tuple[str, ...] = ()
    complexity: str = ""


class ComputingEndpoint(Entity, frozen=True):
    """One interface of the service that a client can call."""

    url: str
    interface_name: str
    quality_level: str
    health_state: str
    serving_state: str
    health_state_info: str = ""
    interface_version: tuple[str, ...] = ()
    capability: tuple[str, ...] = ()
    technology: str = ""
    implementor: str = ""
    implementation_name: str = ""
    implementation_version: str = ""
    job_description: tuple[str, ...] = ()


class ComputingManager(Entity, frozen=True):
    """The batch system; each node counts once, however many queues it serves."""

    product_name: str
    product_version: str
    total_physical_cpus: int
    total_logical_cpus: int
    total_slots: int
    slots_used_by_local_jobs: int
    reservation: bool
    bulk_submission: bool
    homogeneous: bool
    logical_cpu_distribution: str = ""


class ComputingShare(Entity, frozen=True):
    """One partition; a node in two of them counts in both, so shares are never added up."""

    mapping_queue: str
    serving_state: str
    total_jobs: int
    running_jobs: int
    waiting_jobs: int
    suspended_jobs: int
    used_slots: int
    free_slots: int
    requested_slots: int
    max_wall_time: int
    max_multi_slot_wall_time: int
    default_wall_time: int
    max_slots_per_job: int
    preemption: bool
    max_main_memory: int | None = None
    guaranteed_main_memory: int | None = None
    scheduling_policy: str = ""
    estimated_average_waiting_time: int | None = None
    estimated_worst_waiting_time: int | None = None


class MappingPolicy(Entity, frozen=True):
    """Who may use a share; scheme `basic`, rules `vo:NAME` or `ALL`, denied unless named."""

    scheme: str
    rule: tuple[str, ...]


class ExecutionEnvironment(Entity, frozen=True):
    """One kind of node: CPUs and memory are per node, instances are nodes."""

    platform: str
    main_memory_size: int
    os_family: str
    connectivity_in: bool | None
    connectivity_out: bool | None
    total_instances: int
    used_instances: int
    unavailable_instances: int
    physical_cpus: int
    logical_cpus: int
    cpu_multiplicity: str
    os_name: str = ""
    os_version: str = ""
    cpu_vendor: str = ""
    cpu_model: str = ""
    cpu_clock_speed: int | None = None
    network_info: tuple[str, ...] = ()


class ComputingManagerAcceleratorInfo(Entity, frozen=True):
    """Accelerators of one type (GPU) in the whole cluster; models are in `extension`."""

    type: str
    total_accelerator_slots: int
    used_accelerator_slots: int
    total_physical_accelerators: int | None = None


class ComputingShareAcceleratorInfo(Entity, frozen=True):
    """Accelerators of one type (GPU) in one share; models are in `extension`."""

    type: str
    free_accelerator_slots: int
    used_accelerator_slots: int
    max_accelerator_slots_per_job: int


class AcceleratorEnvironment(Entity, frozen=True):
    """One model of accelerator in one kind of node; numbers are per node, memory per card in MB."""

    type: str
    logical_accelerators: int
    model: str
    physical_accelerators: int | None = None
    vendor: str = ""
    memory: int | None = None


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one cluster publishes, observed at one moment."""

    admin_domain: AdminDomain
    location: Location | None
    contacts: tuple[Contact, ...]
    service: ComputingService
    endpoints: tuple[ComputingEndpoint, ...]
    manager: ComputingManager
    shares: tuple[ComputingShare, ...]
    policies: tuple[MappingPolicy, ...]
    environments: tuple[ExecutionEnvironment, ...]
    manager_accelerators: tuple[ComputingManagerAcceleratorInfo, ...]
    share_accelerators: tuple[ComputingShareAcceleratorInfo, ...]
    accelerator_environments: tuple[AcceleratorEnvironment, ...]

    def entities(self) -> tuple[Entity, ...]:
        """All entities, general ones before those that refer to them."""
        location = (self.location,) if self.location else ()
        return (
            self.admin_domain,
            *location,
            *self.contacts,
            self.service,
            *self.endpoints,
            self.manager,
            *self.environments,
            *self.shares,
            *self.policies,
            *self.manager_accelerators,
            *self.share_accelerators,
            *self.accelerator_environments,
        )

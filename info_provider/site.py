"""One cluster's snapshot and its administrator's words, as the GLUE entities to publish (pure)."""

from collections.abc import Mapping, Sequence

import headgate
from headgate.slurm.capacity import Machine, Slots, by_type, machines, total
from headgate.slurm.model import Partition
from info_provider import accelerators, environments, glue, policies, shares
from info_provider.environments import NodeKind
from info_provider.identifiers import Identifiers
from info_provider.settings import EndpointSettings, InfoSettings, NodeSettings
from info_provider.snapshot import Health, Snapshot

_UNASKED = Health("unknown", "no health URL is configured")


def describe(snapshot: Snapshot, settings: InfoSettings) -> glue.Site:
    """Everything the site publishes about this moment. Nothing in it is negative or made up."""
    return _Description(snapshot, settings).site()


class _Description:
    """What several entities need, worked out once."""

    def __init__(self, snapshot: Snapshot, settings: InfoSettings) -> None:
        self._snapshot = snapshot
        self._settings = settings
        self._ids = Identifiers(
            settings.domain.id,
            settings.service.name,
            snapshot.taken_at,
            settings.publish.validity,
        )
        self._nodes = machines(snapshot.nodes)
        self._kinds = environments.kinds(self._nodes, features=settings.node.features)
        self._partitions = [one for one in snapshot.partitions if self._published(one)]
        self._members = _members(self._nodes)
        self._loads = shares.loads(snapshot.jobs)
        tracked = snapshot.configuration.values.get("AccountingStorageTRES", "").split(",")
        self._gpus_tracked = any(one.strip().startswith(shares.GPU_TRES) for one in tracked)

    def _published(self, partition: Partition) -> bool:
        publish = self._settings.publish
        wanted = not publish.partitions or partition.name in publish.partitions
        visible = publish.hidden or not partition.hidden
        return wanted and visible and (publish.root_only or not partition.root_only)

    def site(self) -> glue.Site:
        known = self._settings.gpu
        return glue.Site(
            admin_domain=self._domain(),
            location=self._location(),
            contacts=self._contacts(),
            service=self._service(),
            endpoints=tuple(self._endpoint(one) for one in self._settings.endpoint),
            manager=self._manager(),
            shares=tuple(self._share(one) for one in self._partitions),
            policies=tuple(policy for one in self._partitions for policy in self._policy(one)),
            environments=tuple(self._environment(kind) for kind in self._kinds),
            manager_accelerators=accelerators.of_manager(
                self._ids, by_type(one.gpus for one in self._nodes)
            ),
            share_accelerators=tuple(
                info for one in self._partitions for info in self._share_accelerators(one)
            ),
            accelerator_environments=tuple(
                one for kind in self._kinds for one in accelerators.of_nodes(self._ids, kind, known)
            ),
        )

    def _domain(self) -> glue.AdminDomain:
        domain = self._settings.domain
        location = self._settings.location
        head = self._ids.head("AdminDomain", name=domain.id)
        head["id"] = domain.id  # the infrastructure's own name for the site, not one of ours
        return glue.AdminDomain(
            **head,
            description=domain.description,
            www=domain.www,
            owner=domain.owner,
            associations={
                "ParentDomainID": None,
                "ComputingServiceID": (self._ids.of("ComputingService"),),
                "LocationID": self._ids.of("Location") if location else None,
                "ContactID": self._contact_ids(),
            },
        )

    def _location(self) -> glue.Location | None:
        place = self._settings.location
        if place is None:
            return None
        return glue.Location(
            **self._ids.head("Location", name=place.name),
            address=place.address,
            place=place.place,
            country=place.country,
            postal_code=place.postal_code,
            latitude=place.latitude,
            longitude=place.longitude,
            associations={"DomainID": (self._settings.domain.id,)},
        )

    def _contact_ids(self) -> tuple[str, ...]:
        return tuple(
            self._ids.of("Contact", f"{number}.{one.type}")
            for number, one in enumerate(self._settings.contact, 1)
        )

    def _contacts(self) -> tuple[glue.Contact, ...]:
        return tuple(
            glue.Contact(
                **self._ids.head("Contact", f"{number}.{one.type}", name=one.type),
                detail=one.detail,
                type=one.type,
                associations={"DomainID": (self._settings.domain.id,)},
            )
            for number, one in enumerate(self._settings.contact, 1)
        )

    def _service(self) -> glue.ComputingService:
        service = self._settings.service
        endpoints = self._settings.endpoint
        interfaces = len({one.interface_name for one in endpoints})
        capability = dict.fromkeys(word for one in endpoints for word in one.capability)
        return glue.ComputingService(
            **self._ids.head("ComputingService"),
            type=service.type,
            quality_level=service.quality_level,
            capability=tuple(capability),
            complexity=(
                f"endpointType={interfaces}, share={len(self._partitions)}, "
                f"resource={len(self._kinds)}"
            ),
            associations={
                "AdminDomainID": self._settings.domain.id,
                "LocationID": self._ids.of("Location") if self._settings.location else None,
                "ContactID": self._contact_ids(),
                "ServiceID": (),
                "ComputingEndpointID": self._endpoint_ids(),
                "ComputingShareID": self._share_ids(),
                "ComputingManagerID": (self._ids.manager,),
            },
        )

    def _endpoint_ids(self) -> tuple[str, ...]:
        return tuple(self._endpoint_id(one) for one in self._settings.endpoint)

    def _endpoint_id(self, endpoint: EndpointSettings) -> str:
        return self._ids.of("ComputingEndpoint", _local(endpoint))

    def _share_ids(self) -> tuple[str, ...]:
        return tuple(self._ids.of("ComputingShare", one.name) for one in self._partitions)

    def _endpoint(self, endpoint: EndpointSettings) -> glue.ComputingEndpoint:
        health = self._snapshot.health.get(endpoint.url, _UNASKED)
        ours = endpoint.implementation_name == "headgate"
        return glue.ComputingEndpoint(
            **self._ids.head("ComputingEndpoint", _local(endpoint)),
            url=endpoint.url,
            interface_name=endpoint.interface_name,
            interface_version=(endpoint.interface_version,),
            technology=endpoint.technology,
            capability=endpoint.capability,
            quality_level=endpoint.quality_level,
            serving_state=endpoint.serving_state,
            health_state=health.state,
            health_state_info=health.info,
            implementation_name=endpoint.implementation_name,
            implementation_version=endpoint.implementation_version
            or (headgate.__version__ if ours else ""),
            associations={
                "ServiceID": self._ids.of("ComputingService"),
                "ComputingServiceID": self._ids.of("ComputingService"),
                "ShareID": self._share_ids(),
            },
        )

    def _manager(self) -> glue.ComputingManager:
        slots = total(one.cpus for one in self._nodes)
        distribution: dict[int, int] = {}
        for one in self._nodes:
            distribution[one.node.cpus] = distribution.get(one.node.cpus, 0) + 1
        resources = self._environment_ids(self._kinds)
        return glue.ComputingManager(
            **self._ids.head("ComputingManager", name="SLURM"),
            product_name="SLURM",
            product_version=self._snapshot.configuration.version,
            total_physical_cpus=sum(one.node.sockets for one in self._nodes),
            total_logical_cpus=slots.installed,
            total_slots=slots.usable,
            # Jobs of the gateway run as local users like any: Slurm cannot tell them apart.
            slots_used_by_local_jobs=slots.used,
            reservation=True,
            bulk_submission=True,
            homogeneous=len(self._kinds) == 1,
            logical_cpu_distribution=", ".join(
                f"{number}:{nodes}" for number, nodes in sorted(distribution.items())
            ),
            associations={
                "ServiceID": self._ids.of("ComputingService"),
                "ComputingServiceID": self._ids.of("ComputingService"),
                "ResourceID": resources,
                "ExecutionEnvironmentID": resources,
            },
        )

    def _environment_ids(self, kinds: Sequence[NodeKind]) -> tuple[str, ...]:
        return tuple(self._ids.of("ExecutionEnvironment", kind.name) for kind in kinds)

    def _share(self, partition: Partition) -> glue.ComputingShare:
        nodes = self._members.get(partition.name, [])
        load = self._loads.get(partition.name, shares.Load())
        limits = shares.limits(partition, nodes)
        slots = shares.cpu_slots(partition, nodes, load)
        wait = 0 if slots.free and not load.eligible else None
        resources = self._environment_ids(self._kinds_of(partition))
        return glue.ComputingShare(
            **self._ids.head("ComputingShare", partition.name),
            mapping_queue=partition.name,
            serving_state=shares.SERVING.get(partition.state, "closed"),
            total_jobs=load.running + load.waiting + load.suspended,
            running_jobs=load.running,
            waiting_jobs=load.waiting,
            suspended_jobs=load.suspended,
            used_slots=slots.used,
            free_slots=slots.free,
            requested_slots=load.cpus_requested,
            max_wall_time=limits.max_seconds,
            max_multi_slot_wall_time=limits.max_seconds,
            default_wall_time=limits.default_seconds,
            max_slots_per_job=limits.max_cpus,
            max_main_memory=limits.max_memory_mib,
            guaranteed_main_memory=limits.guaranteed_memory_mib,
            preemption=partition.preempt_mode not in {"", "OFF"},
            scheduling_policy=self._scheduling_policy(),
            estimated_average_waiting_time=wait,
            estimated_worst_waiting_time=wait,
            associations={
                "ServiceID": self._ids.of("ComputingService"),
                "ComputingServiceID": self._ids.of("ComputingService"),
                "EndpointID": self._endpoint_ids(),
                "ComputingEndpointID": self._endpoint_ids(),
                "ResourceID": resources,
                "ExecutionEnvironmentID": resources,
            },
        )

    def _scheduling_policy(self) -> str:
        values = self._snapshot.configuration.values
        if values.get("PriorityType") == "priority/basic":
            return "fifo"
        weight = values.get("PriorityWeightFairShare", values.get("PriorityWeightFairshare", "0"))
        return "fairshare" if weight.strip("0") else ""

    def _kinds_of(self, partition: Partition) -> list[NodeKind]:
        return [
            kind
            for kind in self._kinds
            if any(partition.name in one.node.partitions for one in kind.nodes)
        ]

    def _share_accelerators(
        self, partition: Partition
    ) -> tuple[glue.ComputingShareAcceleratorInfo, ...]:
        nodes = self._members.get(partition.name, [])
        load = self._loads.get(partition.name, shares.Load())
        slots: Mapping[str, Slots] = shares.gpu_slots(
            partition, nodes, load, tracked=self._gpus_tracked
        )
        most = shares.limits(partition, nodes).max_gpus
        return accelerators.of_share(self._ids, partition.name, slots, most)

    def _policy(self, partition: Partition) -> tuple[glue.MappingPolicy, ...]:
        rules = policies.rules(partition, self._settings.vo)
        if not rules:
            return ()
        domains = tuple(f"urn:glue2:UserDomain:{rule.removeprefix('vo:')}" for rule in rules)
        share = self._ids.of("ComputingShare", partition.name)
        return (
            glue.MappingPolicy(
                **self._ids.head("MappingPolicy", partition.name),
                scheme="basic",
                rule=rules,
                associations={"ShareID": share, "UserDomainID": domains},
            ),
        )

    def _environment(self, kind: NodeKind) -> glue.ExecutionEnvironment:
        common: NodeSettings = self._settings.node
        serving = [one.node for one in kind.nodes if one.node.state.available]
        return glue.ExecutionEnvironment(
            **self._ids.head("ExecutionEnvironment", kind.name),
            platform=kind.platform or glue.UNDEFINED,
            os_family=kind.os_family or glue.UNDEFINED,
            os_name=common.os_name,
            os_version=common.os_version,
            main_memory_size=kind.memory_mib,
            connectivity_in=common.connectivity_in,
            connectivity_out=common.connectivity_out,
            total_instances=len(kind.nodes),
            used_instances=sum(node.state.base == "ALLOCATED" for node in serving),
            unavailable_instances=len(kind.nodes) - len(serving),
            physical_cpus=kind.sockets,
            logical_cpus=kind.cpus,
            cpu_multiplicity=_multiplicity(kind),
            cpu_vendor=common.cpu_vendor,
            cpu_model=common.cpu_model,
            cpu_clock_speed=common.cpu_clock_speed,
            network_info=common.network_info,
            associations={
                "ManagerID": self._ids.manager,
                "ComputingManagerID": self._ids.manager,
                "ShareID": tuple(
                    self._ids.of("ComputingShare", one.name)
                    for one in self._partitions
                    if any(one.name in machine.node.partitions for machine in kind.nodes)
                ),
            },
        )


def _local(endpoint: EndpointSettings) -> str:
    return f"{endpoint.interface_name}.{endpoint.url.split('://')[-1].strip('/')}"


def _members(nodes: Sequence[Machine]) -> Mapping[str, list[Machine]]:
    members: dict[str, list[Machine]] = {}
    for one in nodes:
        for partition in one.node.partitions:
            members.setdefault(partition, []).append(one)
    return members


def _multiplicity(kind: NodeKind) -> str:
    """GLUE's closed list: one or more CPUs (sockets), each with one or more cores."""
    sockets = "multicpu" if kind.sockets > 1 else "singlecpu"
    cores = "multicore" if kind.cores_per_socket > 1 else "singlecore"
    return f"{sockets}-{cores}"

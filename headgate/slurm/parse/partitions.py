"""Partitions and reservations, from scontrol's one-line records."""

from collections.abc import Mapping

from headgate.slurm.model import Partition, Reservation
from headgate.slurm.parse.notes import Note, silent
from headgate.slurm.parse.records import most, number, records, words
from headgate.slurm.parse.resources import NOTHING
from headgate.slurm.parse.times import minutes, moment


def partitions(text: str, note: Note = silent) -> tuple[Partition, ...]:
    """The partitions of `scontrol -a -o show partition` (scontrol(1), slurm.conf(5))."""
    return tuple(_partition(values, note) for values in records(text, "PartitionName"))


def reservations(text: str, note: Note = silent) -> tuple[Reservation, ...]:
    """The reservations of `scontrol -o show reservation`; without one, Slurm says so in words."""
    return tuple(
        Reservation(
            name=values["ReservationName"],
            state=values.get("State", ""),
            nodes=_value(values, "Nodes"),
            starts_at=moment(values.get("StartTime", ""), note),
            ends_at=moment(values.get("EndTime", ""), note),
            partition=_value(values, "PartitionName"),
            flags=words(values.get("Flags", "")),
        )
        for values in records(text, "ReservationName")
    )


def _partition(values: Mapping[str, str], note: Note) -> Partition:
    return Partition(
        name=values["PartitionName"],
        state=values.get("State", ""),
        is_default=_yes(values, "Default"),
        hidden=_yes(values, "Hidden"),
        root_only=_yes(values, "RootOnly"),
        nodes=_value(values, "Nodes"),
        total_nodes=number(values, "TotalNodes", note),
        total_cpus=number(values, "TotalCPUs", note),
        max_time_minutes=minutes(values.get("MaxTime", ""), note),
        default_time_minutes=minutes(values.get("DefaultTime", ""), note),
        max_nodes=most(values, "MaxNodes", note),
        min_nodes=number(values, "MinNodes", note),
        max_cpus_per_node=most(values, "MaxCPUsPerNode", note),
        max_memory_per_node_mib=most(values, "MaxMemPerNode", note),
        allow_groups=_allowed(values, "AllowGroups"),
        allow_accounts=_allowed(values, "AllowAccounts"),
        allow_qos=_allowed(values, "AllowQos"),
        preempt_mode=values.get("PreemptMode", ""),
    )


def _yes(values: Mapping[str, str], key: str) -> bool:
    return values.get(key, "").upper() == "YES"


def _value(values: Mapping[str, str], key: str) -> str:
    text = values.get(key, "")
    return "" if text in NOTHING else text


def _allowed(values: Mapping[str, str], key: str) -> tuple[str, ...]:
    return () if values.get(key, "").upper() == "ALL" else words(values.get(key, ""))

"""The cluster's settings and its controllers, as scontrol prints them."""

import re

from headgate.slurm.model import Configuration, Controller
from headgate.slurm.parse.notes import Note, silent

_SETTING = re.compile(r"([A-Za-z][\w\[\]]*)\s* = ?(.*)")
_CONTROLLER = re.compile(r"Slurmctld\(([^)]*)\) at (\S+) is (\w+)")
_SECONDS = re.compile(r"(\d+) sec", re.ASCII)

MIN_JOB_AGE = 300
"""Slurm's own default (slurm.conf(5), MinJobAge), in seconds."""


def configuration(text: str, note: Note = silent) -> Configuration:
    """The settings of `scontrol show config`; where a name comes twice the first one counts."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        if found := _SETTING.fullmatch(line.rstrip()):
            values.setdefault(found[1], found[2].strip())
    age = _SECONDS.fullmatch(values.get("MinJobAge", ""))
    if age is None:
        note("MinJobAge", values.get("MinJobAge", ""))
    return Configuration(
        cluster=values.get("ClusterName", ""),
        version=values.get("SLURM_VERSION", ""),
        min_job_age_seconds=int(age[1]) if age else MIN_JOB_AGE,
        values=values,
    )


def controllers(text: str) -> tuple[Controller, ...]:
    """The controllers of `scontrol ping`: `primary`, `backup`, `backup1`, … and whether each is up.

    Around each line an operator may find banners and advice: they say nothing of their own.
    """
    return tuple(
        Controller(role=found[1], host=found[2], up=found[3] == "UP")
        for found in _CONTROLLER.finditer(text)
    )

"""Reading what Slurm's commands print: pure functions from text to the values of the model."""

from headgate.slurm.parse.configuration import configuration, controllers
from headgate.slurm.parse.jobs import (
    ACCOUNTED_FIELDS,
    NAME_FIELD,
    QUEUE_FIELDS,
    MalformedAnswerError,
    accounted_jobs,
    accounting_delimiter,
    array_tasks,
    job_state,
    named_jobs,
    queue_format,
    queued_jobs,
)
from headgate.slurm.parse.nodes import node_state, nodes
from headgate.slurm.parse.nodesets import count, expand
from headgate.slurm.parse.notes import Note, Notes, silent
from headgate.slurm.parse.partitions import partitions, reservations
from headgate.slurm.parse.quantities import bytes_of, mebibytes
from headgate.slurm.parse.resources import gres, tres
from headgate.slurm.parse.times import minutes, moment, seconds

__all__ = [
    "ACCOUNTED_FIELDS",
    "NAME_FIELD",
    "QUEUE_FIELDS",
    "MalformedAnswerError",
    "Note",
    "Notes",
    "accounted_jobs",
    "accounting_delimiter",
    "array_tasks",
    "bytes_of",
    "configuration",
    "controllers",
    "count",
    "expand",
    "gres",
    "job_state",
    "mebibytes",
    "minutes",
    "moment",
    "named_jobs",
    "node_state",
    "nodes",
    "partitions",
    "queue_format",
    "queued_jobs",
    "reservations",
    "seconds",
    "silent",
    "tres",
]

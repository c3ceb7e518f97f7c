"""What a job's process is started with: its environment, its files; pure."""

import os
from collections.abc import Mapping

from headgate.slurm.memory.execution import Launch, Submitted
from headgate.slurm.memory.jobs import Job
from headgate.slurm.memory.patterns import expand_pattern
from headgate.slurm.memory.protocol import Refused


def check_script(script: str) -> None:
    """Refuse what sbatch refuses before it asks anybody.

    Raises:
        Refused: empty, without an interpreter, or with line ends of DOS.
    """
    if not script:
        raise Refused("Batch script is empty!")
    if not script.startswith("#!"):
        raise Refused(
            "This does not look like a batch script.  The first",
            "line must start with #! followed by the path to an interpreter.",
            "For instance: #!/bin/sh",
        )
    if "\r\n" in script:
        raise Refused(
            "Batch script contains DOS line breaks (\\r\\n)",
            "instead of expected UNIX line breaks (\\n).",
        )


def launch(job: Job, submitted: Submitted, cluster: str) -> Launch:
    """How a job that was given nodes is started, on the first of them."""
    request = job.request
    first = job.shares[0].node
    fill: dict[str, str | int] = {
        "j": job.id,
        "A": job.id,
        "x": request.name,
        "u": job.user,
        "N": first,
        "n": 0,
    }
    return Launch(
        directory=request.directory,
        output=expand_pattern(request.output, fill),
        error=expand_pattern(request.error, fill),
        arguments=submitted.arguments,
        environment={
            **submitted.environment,
            "ENVIRONMENT": "BATCH",
            "HOSTNAME": first,
            "SLURMD_NODENAME": first,
            "TMPDIR": submitted.environment.get("TMPDIR", "/tmp"),  # noqa: S108 - Slurm's default
            **{f"SLURM_{name}": text for name, text in _described(job, submitted, cluster).items()},
            **_gpus(job),
        },
    )


def _described(job: Job, submitted: Submitted, cluster: str) -> Mapping[str, str]:
    """The job as its script sees it (sbatch(1), OUTPUT ENVIRONMENT VARIABLES)."""
    request = job.request
    first = job.shares[0]
    nodes = ",".join(share.node for share in job.shares)
    tasks = [share.cpus // request.cpus_per_task for share in job.shares]
    values: dict[str, str | int] = {
        "CLUSTER_NAME": cluster,
        "CPUS_ON_NODE": first.cpus,
        "CPUS_PER_TASK": request.cpus_per_task,
        "GTIDS": 0,
        "JOBID": job.id,
        "JOB_ACCOUNT": request.account,
        "JOB_CPUS_PER_NODE": ",".join(str(share.cpus) for share in job.shares),
        "JOB_GID": os.getgid(),
        "JOB_ID": job.id,
        "JOB_NAME": request.name,
        "JOB_NODELIST": nodes,
        "JOB_NUM_NODES": len(job.shares),
        "JOB_PARTITION": job.partition,
        "JOB_QOS": "normal",
        "JOB_UID": job.uid,
        "JOB_USER": job.user,
        "LOCALID": 0,
        "MEM_PER_NODE": first.memory_mib,
        "NNODES": len(job.shares),
        "NODEID": 0,
        "NODELIST": nodes,
        "NPROCS": request.tasks,
        "NTASKS": request.tasks,
        "PROCID": 0,
        "SUBMIT_DIR": submitted.directory,
        "SUBMIT_HOST": submitted.host,
        "TASKS_PER_NODE": ",".join(map(str, tasks)),
    }
    if job.restarts:
        values["RESTART_COUNT"] = job.restarts
    return {name: str(value) for name, value in values.items()}


def _gpus(job: Job) -> Mapping[str, str]:
    """The GPUs of the first node, by their indexes; nothing for a job without."""
    gpus = job.shares[0].gpus
    if not gpus:
        return {}
    cards = ",".join(map(str, gpus))
    return {
        "CUDA_VISIBLE_DEVICES": cards,
        "GPU_DEVICE_ORDINAL": cards,
        "SLURM_GPUS_ON_NODE": str(len(gpus)),
        "SLURM_JOB_GPUS": cards,
    }

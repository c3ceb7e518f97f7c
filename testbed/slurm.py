"""The site's batch system: munge, MariaDB, slurmdbd, slurmctld and two emulated nodes with GPUs."""

import os
import secrets
import stat
from dataclasses import dataclass

from testbed import mariadb
from testbed.components import Accepts, Component, Ends, Listens, Prints
from testbed.folders import Folder
from testbed.instances import Ports
from testbed.namespace import HOSTNAME

NODES = ("n1", "n2")
CPUS = 8
MEMORY_MB = 4000
GPUS = 4
_DATABASE = "slurm_acct_db"


@dataclass(frozen=True, slots=True)
class Cluster:
    """What may differ between sites; times in seconds."""

    name: str = "testbed"
    min_job_age: int = 300
    kill_wait: int = 2
    slurmd_timeout: int = 60


def users() -> tuple[str, ...]:
    """The system accounts that this part needs."""
    return ("munge", "mysql", "slurm")


def conf_path(folder: Folder) -> str:
    """The site's slurm.conf, as commands find it by SLURM_CONF."""
    return str(folder.path("slurm", "slurm.conf"))


async def prepare(folder: Folder, ports: Ports, cluster: Cluster) -> tuple[Component, ...]:
    """Write what the daemons read, and say how they are run.

    Raises:
        CommandError: MariaDB's data folder could not be initialised.
    """
    folder.make("munge", owner="munge", mode=0o700)
    folder.write("munge/key", secrets.token_bytes(128), owner="munge", mode=0o400)
    folder.make("slurm/state", owner="slurm", mode=0o700)
    password = secrets.token_hex(16)
    dbd = _slurmdbd_conf(folder, ports, password)
    folder.write("slurm/slurmdbd.conf", dbd, owner="slurm", mode=0o600)
    folder.write("slurm/slurm.conf", _slurm_conf(folder, ports, cluster))
    folder.write("slurm/gres.conf", _gres_conf(folder))
    folder.path("etc", "slurm").symlink_to(folder.path("slurm"))
    _gpus(folder)
    for node in NODES:
        folder.make(f"slurm/spool/{node}")
        folder.make(f"nodes/{node}/tmp", mode=0o1777)  # noqa: S108 - the node's own
    database = await mariadb.prepare(
        folder, port=ports.take("mariadb"), database=_DATABASE, user="slurm", password=password
    )
    return (_munged(folder), database, *_accounting(folder, ports, cluster), *_workload(folder))


def _munged(folder: Folder) -> Component:
    # The default socket: slurmdbd's clients look nowhere else.
    return Component(
        name="munged",
        argv=(
            "munged",
            "--foreground",
            f"--key-file={folder.path('munge', 'key')}",
            f"--log-file={folder.path('munge', 'log')}",
            f"--pid-file={folder.path('munge', 'pid')}",
            f"--seed-file={folder.path('munge', 'seed')}",
            "--socket=/run/munge/munge.socket.2",
        ),
        user="munge",
        runtime_directory="munge",
        ready=Accepts("/run/munge/munge.socket.2"),
    )


def _accounting(folder: Folder, ports: Ports, cluster: Cluster) -> tuple[Component, ...]:
    environment = {"SLURM_CONF": conf_path(folder)}
    return (
        Component(
            name="slurmdbd",
            argv=("slurmdbd", "-D"),
            user="slurm",
            environment=environment,
            after=("munged", "mariadb"),
            ready=Listens(ports.take("slurmdbd")),
        ),
        Component(
            name="slurm-cluster",
            argv=("sacctmgr", "-i", "add", "cluster", cluster.name),
            environment=environment,
            after=("slurmdbd",),
            ready=Ends(),
        ),
    )


def _workload(folder: Folder) -> tuple[Component, ...]:
    environment = {"SLURM_CONF": conf_path(folder)}
    asked = ("env", f"SLURM_CONF={conf_path(folder)}")
    controller = Component(
        name="slurmctld",
        argv=("slurmctld", "-D"),
        user="slurm",
        environment=environment,
        after=("slurm-cluster",),
        ready=Prints((*asked, "scontrol", "ping"), ".* is UP"),
    )
    nodes = (
        Component(
            name=f"slurmd-{node}",
            argv=("slurmd", "-D", "-N", node),
            environment=environment,
            after=("slurmctld",),
            private_tmp=str(folder.path("nodes", node, "tmp")),
            ready=Prints(
                (*asked, "sinfo", "-h", "-N", "-n", node, "-o", "%T"),
                "idle|mixed|allocated|completing|draining|drained|reserved",
            ),
        )
        for node in NODES
    )
    return (controller, *nodes)


def _gpus(folder: Folder) -> None:
    """Device files that take everything and give nothing (null(4)), one set for both nodes."""
    folder.make("gpus")
    for number in range(GPUS):
        path = folder.path("gpus", f"nvidia{number}")
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        path.chmod(0o666)


def _gres_conf(folder: Folder) -> str:
    files = folder.path("gpus", f"nvidia[0-{GPUS - 1}]")
    return f"NodeName=n[1-2] Name=gpu Type=tesla File={files}\n"


def _slurmdbd_conf(folder: Folder, ports: Ports, password: str) -> str:
    return f"""\
AuthType=auth/munge
DbdHost={HOSTNAME}
CommunicationParameters=NoInAddrAny
DbdAddr=127.0.0.1
DbdPort={ports.take("slurmdbd")}
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={ports.take("mariadb")}
StorageUser=slurm
StoragePass={password}
StorageLoc={_DATABASE}
PidFile={folder.path("slurm", "state", "slurmdbd.pid")}
CommitDelay=1
"""


def _slurm_conf(folder: Folder, ports: Ports, cluster: Cluster) -> str:
    slurm = folder.path("slurm")
    slurmd = f"{ports.take('slurmd-n1')},{ports.take('slurmd-n2')}"
    return f"""\
ClusterName={cluster.name}
SlurmctldHost={HOSTNAME}(127.0.0.1)
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmctldPort={ports.take("slurmctld")}
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation={slurm}/state
SlurmdSpoolDir={slurm}/spool/%n
SlurmctldPidFile={slurm}/state/slurmctld.pid
SlurmdPidFile={slurm}/spool/%n.pid
MailProg=/bin/true

ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
MpiDefault=none
SwitchType=switch/none
PropagateResourceLimits=NONE

SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
DefMemPerCPU=100
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=1,bf_max_job_test=200
PriorityType=priority/multifactor

AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={ports.take("slurmdbd")}
AccountingStorageTRES=gres/gpu,gres/gpu:tesla

MaxJobCount=50000
MinJobAge={cluster.min_job_age}
KillWait={cluster.kill_wait}
CompleteWait=0
InactiveLimit=0
SlurmdTimeout={cluster.slurmd_timeout}
SlurmctldDebug=info
SlurmdDebug=info
SlurmdParameters=config_overrides
ReturnToService=2

NodeName=n[1-2] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{slurmd}] \
CPUs={CPUS} RealMemory={MEMORY_MB} Gres=gpu:tesla:{GPUS} State=UNKNOWN
PartitionName=batch Nodes=ALL Default=YES DefaultTime=0:10:00 MaxTime=2:00:00 State=UP
PartitionName=gpu Nodes=ALL DefaultTime=0:10:00 MaxTime=1:00:00 State=UP
PartitionName=short Nodes=ALL DefaultTime=0:01:00 MaxTime=0:05:00 PriorityTier=2 State=UP
"""

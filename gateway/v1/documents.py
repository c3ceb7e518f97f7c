"""What `/v1` shows: values to JSON documents, times as RFC 3339, nothing internal."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from gateway.clusters import Cluster, Queue
from gateway.jobs import Job
from gateway.submission import Plan
from headgate.clock import rfc3339
from headgate.identity import Principal
from headgate.registry import Standing

_STATE = (
    "id",
    "name",
    "state",
    "status_message",
    "cluster",
    "native_id",
    "attempt",
    "exit_code",
    "failure",
    "cancel_requested",
    "hold_requested",
    "created_at",
    "updated_at",
    "started_at",
    "ended_at",
)


def job_document(job: Job, files_days: float | None = None) -> dict[str, Any]:
    """One job, the files of which are kept that many days after its end (None: for ever)."""
    optional = {
        "status_message": job.status_message or None,
        "native_id": None if job.native_id is None else str(job.native_id),
        "exit_code": job.exit_code,
        "failure": job.failure,
        "effective": job.effective,
        "nodes": job.nodes or None,
        "started_at": _time(job.started_at),
        "ended_at": _time(job.ended_at),
        "expires": _expires(job, files_days),
        "files_removed_at": _time(job.files_removed_at),
        "cancel_requested": job.cancel_requested or None,
        "hold_requested": job.hold_requested or None,
        "environment_names": job.environment_names or None,
    }
    return {
        "id": job.id,
        "name": job.spec.name,
        "state": job.state,
        "cluster": job.cluster,
        "account": job.account,
        "attempt": job.attempt,
        **{name: value for name, value in optional.items() if value is not None},
        "directory": job.directory,
        "created_at": rfc3339(job.created_at),
        "updated_at": rfc3339(job.updated_at),
        "spec": job.spec,
        "links": {
            "self": f"/v1/jobs/{job.id}",
            "stdout": f"/v1/jobs/{job.id}/stdout",
            "stderr": f"/v1/jobs/{job.id}/stderr",
            "script": f"/v1/jobs/{job.id}/script",
            "environment": f"/v1/jobs/{job.id}/environment",
        },
    }


def state_document(job: Job) -> dict[str, Any]:
    """A job's state and end, and nothing that is long."""
    shown = job_document(job)
    return {name: shown[name] for name in _STATE if name in shown}


def cluster_document(cluster: Cluster, queues: Sequence[Queue]) -> dict[str, Any]:
    """One cluster and its queues; no queues: it could not be read so far."""
    return {
        "name": cluster.name,
        "containers": cluster.settings.udocker is not None,
        "queues": [msgspec.to_builtins(queue) for queue in queues],
        "maintenance": [
            {
                "name": planned.name,
                "nodes": planned.nodes,
                "starts_at": _time(planned.starts_at),
                "ends_at": _time(planned.ends_at),
            }
            for planned in cluster.maintenance
        ],
        "read_at": _time(cluster.read_at),
    }


def plan_document(plan: Plan) -> dict[str, Any]:
    """What would be sent; the row is none yet, so the real script will name another one."""
    return {
        "cluster": plan.cluster.name,
        "account": plan.account.account,
        "directory": plan.sealed.directory,
        "sbatch_args": plan.sealed.sbatch_args,
        "script": plan.sealed.script,
    }


def environment_document(job: Job) -> dict[str, Any]:
    """The environment that a job was given; values are gone once it has started."""
    if job.environment_names:
        return {"names": job.environment_names, "values": None}
    return {"names": sorted(job.spec.environment), "values": job.spec.environment}


def me_document(principal: Principal, realm: str, standing: Standing) -> dict[str, Any]:
    """Who the caller is here: identity, groups, account or why there is none."""
    account = standing.account
    return {
        "iss": principal.identity.iss,
        "sub": principal.identity.sub,
        "name": principal.name,
        "groups": sorted(principal.groups),
        "realm": realm,
        "state": standing.state,
        **({"account": account.account, "uid": account.uid} if account else {}),
        **standing.facts,
    }


def _expires(job: Job, files_days: float | None) -> dict[str, str] | None:
    if files_days is None or job.ended_at is None or job.files_removed_at is not None:
        return None
    return {"files": rfc3339(job.ended_at + timedelta(days=files_days))}


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else rfc3339(moment)

"""What `/v1` shows: values to JSON documents, times as RFC 3339, nothing internal."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from gateway.clusters import Cluster, Queue
from gateway.jobs import Job
from headgate.clock import rfc3339
from headgate.identity import Principal
from headgate.registry import Standing


def job_document(job: Job) -> dict[str, Any]:
    """One job."""
    optional = {
        "status_message": job.status_message or None,
        "native_id": None if job.native_id is None else str(job.native_id),
        "exit_code": job.exit_code,
        "failure": job.failure,
        "effective": job.effective,
        "nodes": job.nodes or None,
        "started_at": _time(job.started_at),
        "ended_at": _time(job.ended_at),
        "cancel_requested": job.cancel_requested or None,
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


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else rfc3339(moment)

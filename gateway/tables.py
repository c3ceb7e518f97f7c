"""The tables of the gateway's database, and rows as values."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import sqlalchemy as sa

from gateway.jobs import Effective, Failure, Job, JobSpec, Sealed, State
from headgate.identity import Identity

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def microseconds(moment: datetime) -> int:
    """A point in time as microseconds since 1970."""
    return (moment - _EPOCH) // _MICROSECOND


def moment_of(number: int) -> datetime:
    """The point in time so many microseconds after 1970; `OverflowError` beyond the year 9999."""
    return _EPOCH + timedelta(microseconds=number)


class Moment(sa.types.TypeDecorator[datetime]):
    """A point in time as microseconds since 1970: ordered and exact on every database."""

    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> int | None:  # noqa: ARG002 - SQLAlchemy's signature
        """To the database."""
        return None if value is None else microseconds(value)

    def process_result_value(self, value: Any | None, dialect: sa.Dialect) -> datetime | None:  # noqa: ANN401, ARG002 - SQLAlchemy's signature
        """From the database."""
        return None if value is None else moment_of(value)


metadata = sa.MetaData()

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("iss", sa.String(255), nullable=False),
    sa.Column("sub", sa.String(255), nullable=False),
    sa.Column("client_id", sa.String(255), nullable=False),
    sa.Column("groups", sa.Text, nullable=False),
    sa.Column("cluster", sa.String(64), nullable=False),
    sa.Column("realm", sa.String(64), nullable=False),
    sa.Column("account", sa.String(64), nullable=False),
    sa.Column("uid", sa.BigInteger, nullable=False),
    sa.Column("directory", sa.Text, nullable=False),
    sa.Column("spec", sa.Text, nullable=False),
    sa.Column("environment_names", sa.Text),
    sa.Column("queue", sa.String(255)),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("status_message", sa.Text, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("native_id", sa.BigInteger),
    sa.Column("submitted_at", Moment),
    sa.Column("effective", sa.Text),
    sa.Column("exit_code", sa.Integer),
    sa.Column("failure", sa.Text),
    sa.Column("nodes", sa.Text, nullable=False),
    sa.Column("cancel_requested", sa.Boolean, nullable=False),
    sa.Column("hold_requested", sa.Boolean),
    sa.Column("missing_since", Moment),
    sa.Column("retry_at", Moment),
    sa.Column("created_at", Moment, nullable=False),
    sa.Column("updated_at", Moment, nullable=False),
    sa.Column("started_at", Moment),
    sa.Column("ended_at", Moment),
    sa.Column("files_removed_at", Moment),
    sa.Column("files_kept", sa.Boolean),
    sa.Index("jobs_files", "cluster", "files_removed_at", "ended_at"),
    sa.Index("jobs_owner", "iss", "sub", "created_at", "id"),
    sa.Index("jobs_cluster_state", "cluster", "state"),
)

sealed_jobs = sa.Table(
    "sealed_jobs",
    metadata,
    sa.Column("row", sa.String(36), sa.ForeignKey("jobs.id"), primary_key=True),
    sa.Column("script", sa.Text, nullable=False),
    sa.Column("sbatch_args", sa.Text, nullable=False),
    sa.Column("environment", sa.Text, nullable=False),
)

idempotency_keys = sa.Table(
    "idempotency_keys",
    metadata,
    sa.Column("iss", sa.String(255), primary_key=True),
    sa.Column("sub", sa.String(255), primary_key=True),
    sa.Column("key", sa.String(255), primary_key=True),
    sa.Column("body_sha256", sa.String(64), nullable=False),
    sa.Column("job", sa.String(36), sa.ForeignKey("jobs.id"), nullable=False),
)

job_labels = sa.Table(
    "job_labels",
    metadata,
    sa.Column("job", sa.String(36), sa.ForeignKey("jobs.id"), primary_key=True),
    sa.Column("name", sa.String(63), primary_key=True),
    sa.Column("value", sa.String(255), nullable=False),
    sa.Index("job_labels_name_value", "name", "value"),
)


def columns(job: Job) -> dict[str, Any]:
    """A job as a row of `jobs`."""
    values = {column.name: getattr(job, column.name, None) for column in jobs.columns}
    values |= {
        "iss": job.owner.iss,
        "sub": job.owner.sub,
        "groups": _json(job.groups),
        "spec": _json(job.spec),
        "environment_names": _json(job.environment_names) if job.environment_names else None,
        "state": job.state.value,
        "queue": (job.effective and job.effective.queue_name) or job.spec.attributes.queue_name,
        "effective": None if job.effective is None else _json(job.effective),
        "failure": None if job.failure is None else _json(job.failure),
    }
    return values


def labels_of(job: Job) -> list[dict[str, str]]:
    """A job's rows of `job_labels`."""
    return [
        {"job": job.id, "name": name, "value": value} for name, value in job.spec.labels.items()
    ]


def sealed_columns(sealed: Sealed) -> dict[str, Any]:
    """What was sealed as a row of `sealed_jobs`."""
    return {
        "row": sealed.row,
        "script": sealed.script,
        "sbatch_args": _json(sealed.sbatch_args),
        "environment": sealed.environment,
    }


def job_of(row: sa.RowMapping) -> Job:
    """A row of `jobs` as the job that it is."""
    plain = {name: row[name] for name in Job.__struct_fields__ if name in row}
    plain |= {
        "owner": Identity(row["iss"], row["sub"]),
        "hold_requested": bool(row["hold_requested"]),
        "groups": msgspec.json.decode(row["groups"], type=tuple[str, ...]),
        "spec": msgspec.json.decode(row["spec"], type=JobSpec),
        "environment_names": msgspec.json.decode(
            row["environment_names"] or "[]", type=tuple[str, ...]
        ),
        "state": State(row["state"]),
        "effective": row["effective"] and msgspec.json.decode(row["effective"], type=Effective),
        "failure": row["failure"] and msgspec.json.decode(row["failure"], type=Failure),
    }
    return Job(**plain)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()

"""The tables of the gateway's database."""

from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

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
    sa.Column("missing_since", Moment),
    sa.Column("retry_at", Moment),
    sa.Column("created_at", Moment, nullable=False),
    sa.Column("updated_at", Moment, nullable=False),
    sa.Column("started_at", Moment),
    sa.Column("ended_at", Moment),
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

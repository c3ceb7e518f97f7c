"""The importer's tables, and what their rows mean; migrations/ makes them."""

from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import (
    Boolean,
    Column,
    DateTime,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Row,
    Select,
    String,
    Table,
    Text,
    UniqueConstraint,
    bindparam,
    select,
    text,
)
from sqlalchemy.types import TypeDecorator

from account_importer.directory import Denial, Entry, Person, State
from headgate.identity import Identity


class UtcDateTime(TypeDecorator[datetime]):
    """An aware moment, kept in UTC also by databases that know no time zone (SQLite)."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """To UTC; a moment without a zone is a bug."""
        del dialect
        if value is not None and value.tzinfo is None:
            raise ValueError("a moment without a time zone")
        return value.astimezone(UTC) if value is not None else None

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Aware, UTC."""
        del dialect
        return value.replace(tzinfo=UTC) if value is not None else None


metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

people = Table(
    "people",
    metadata,
    Column("iss", String(255), primary_key=True),
    Column("sub", String(255), primary_key=True),
    Column("realm", String(64), primary_key=True),
    Column("user_name", String(255), nullable=False),
    Column("groups", Text, nullable=False),  # a JSON array
    Column("end_time", UtcDateTime),
    Column("denial", String(32), nullable=False),
    Column("first_seen", UtcDateTime, nullable=False),
    Column("last_seen", UtcDateTime, nullable=False),
    Column("eligible_since", UtcDateTime),
    Column("refusal", Text, nullable=False, default=""),
)
"""What the source said last about everybody who ever had a right to an account."""

accounts = Table(
    "accounts",
    metadata,
    Column("iss", String(255), primary_key=True),
    Column("sub", String(255), primary_key=True),
    Column("realm", String(64), primary_key=True),
    Column("account", String(64), nullable=False),
    Column("uid", Integer, nullable=False),
    Column("gid", Integer, nullable=False),
    Column("home", Text, nullable=False),
    Column("shell", Text, nullable=False),
    Column("owned", Boolean, nullable=False),
    Column("state", String(16), nullable=False),
    Column("applied", String(16), nullable=False),
    Column("reason", String(64), nullable=False, default=""),
    Column("version", Integer, nullable=False),
    Column("changed_at", UtcDateTime, nullable=False),
)
"""The registry. Rows are never deleted: the row of somebody who is gone is the tombstone that
keeps its name and numbers from anybody else."""

for column in ("account", "uid"):
    # In mapping mode several identities may share one account of the site.
    Index(
        f"uq_accounts_owned_{column}",
        accounts.c.realm,
        accounts.c[column],
        unique=True,
        sqlite_where=text("owned"),
        postgresql_where=text("owned"),
    )

counters = Table(
    "counters",
    metadata,
    Column("realm", String(64), primary_key=True),
    Column("next_id", Integer, nullable=False),
)
"""The next uid and gid; only ever grows."""

plans = Table(
    "plans",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("realm", String(64), nullable=False),
    Column("document", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("made_at", UtcDateTime, nullable=False),
    Column("approved_by", String(255), nullable=False, default=""),
    Column("approved_at", UtcDateTime),
    Column("ended_at", UtcDateTime),
    Column("detail", Text, nullable=False, default=""),
)

journal = Table(
    "journal",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("digest", ForeignKey("plans.digest"), nullable=False),
    Column("seq", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    Column("started_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime),
    Column("tries", Integer, nullable=False, default=1),
    Column("detail", Text, nullable=False, default=""),
    UniqueConstraint("digest", "seq"),
)
"""One row per change, written before the change is made."""

pulls = Table(
    "pulls",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("realm", String(64), nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("seen", Integer, nullable=False),
    Column("denied", Integer, nullable=False),
    Column("detail", Text, nullable=False, default=""),
)

holds = Table(
    "holds",
    metadata,
    Column("iss", String(255), primary_key=True),
    Column("sub", String(255), primary_key=True),
    Column("realm", String(64), primary_key=True),
    Column("hold", String(36), nullable=False),
    Column("placed_at", UtcDateTime, nullable=False),
)
"""Which blocks the token translator was told of, and the name of our hold there."""


def _one(table: Table) -> Select[Any]:
    """The row of one identity; made once, for it is asked for before every signature here."""
    names = ("iss", "sub", "realm")
    return select(table).where(*(table.c[name] == bindparam(name) for name in names))


ONE_PERSON = _one(people)
ONE_ENTRY = _one(accounts)


def identity_of(row: Row[Any]) -> Identity:
    """Whose row it is."""
    return Identity(row.iss, row.sub)


def person_of(row: Row[Any]) -> Person:
    """A row of `people`."""
    return Person(
        identity=identity_of(row),
        user_name=row.user_name,
        groups=frozenset(msgspec.json.decode(row.groups, type=list[str])),
        end_time=row.end_time,
        denial=Denial(row.denial),
        first_seen=row.first_seen,
        last_seen=row.last_seen,
        eligible_since=row.eligible_since,
        refusal=row.refusal,
    )


def entry_of(row: Row[Any]) -> Entry:
    """A row of `accounts`."""
    return Entry(
        identity=identity_of(row),
        account=row.account,
        uid=row.uid,
        gid=row.gid,
        home=row.home,
        shell=row.shell,
        owned=row.owned,
        state=State(row.state),
        applied=State(row.applied),
        reason=row.reason,
        version=row.version,
    )

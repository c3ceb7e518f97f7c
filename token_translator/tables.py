"""The tables of the HTTP service's database; the signer's are its own."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    Uuid,
    text,
)

METADATA = MetaData()
SEALS = Table(
    "seals",
    METADATA,
    Column("instance", String(128), primary_key=True),
    Column("row", Uuid, primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("iss", String(1024), nullable=False),
    Column("sub", String(255), nullable=False),
    Column("realm", String(63), nullable=False),
    Column("client_id", String(255), nullable=False),
    Column("token", String(16), nullable=False),
    Column("sealed_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger, nullable=True),
    Index("seals_of_a_person", "iss", "sub", "sealed_at"),
    sqlite_with_rowid=False,
)

STOPS = Table(
    "stops",
    METADATA,
    Column("instance", String(128), primary_key=True),
    Column("reason", String(1024), nullable=False),
    Column("by", String(1400), nullable=False),
    Column("since", BigInteger, nullable=False),
)

HOLDS = Table(
    "holds",
    METADATA,
    Column("id", Uuid, primary_key=True),
    Column("iss", String(1024), nullable=False),
    Column("sub", String(255), nullable=False),
    Column("realm", String(63), nullable=False),
    Column("owner", String(1400), nullable=False),
    Column("reason", String(1000), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("lifted_at", BigInteger, nullable=True),
    Column("lifted_by", String(1400), nullable=True),
)
Index(
    "holds_in_force",
    *(HOLDS.c[name] for name in ("iss", "sub", "realm", "owner")),
    unique=True,
    sqlite_where=text("lifted_at IS NULL"),
    postgresql_where=text("lifted_at IS NULL"),
)

CHANGES = Table(
    "changes",
    METADATA,
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("iss", String(1024), nullable=False),
    Column("sub", String(255), nullable=False),
    Column("realm", String(63), nullable=False),
    Column("effective", Boolean, nullable=False),
    Column("reason", String(1000), nullable=False),
    Column("at", BigInteger, nullable=False),
)

CHANGE_HEAD = Table(
    "change_head",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("version", BigInteger, nullable=False),
)
"""One row, the newest change's version: whoever moves it on holds its lock until they commit."""

REVOCATION_ORDERS = Table(
    "revocation_orders",
    METADATA,
    Column("id", Uuid, primary_key=True),
    Column("iss", String(1024), nullable=True),
    Column("sub", String(255), nullable=True),
    Column("serials", Text, nullable=False),
    Column("keys", Text, nullable=False),
    Column("authority", String(50), nullable=False),
    Column("row", String(36), nullable=False, server_default=""),
    Column("reason", String(1000), nullable=False),
    Column("ordered_by", String(1400), nullable=False),
    Column("ordered_at", BigInteger, nullable=False),
)
"""What the signer has still to hear; a row goes when it has."""

NOTES = Table(
    "notes",
    METADATA,
    Column("id", Uuid, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("event", String(64), nullable=False),
    Column("iss", String(1024), nullable=False),
    Column("sub", String(255), nullable=False),
    Column("realm", String(63), nullable=False),
    Column("instance", String(128), nullable=False),
    Column("row", String(36), nullable=False),
    Column("actor", String(255), nullable=False, server_default=""),
    Column("detail", String(255), nullable=False),
    Column("mark", String(16), nullable=False),
    Column("number", BigInteger, nullable=False),
    Index("notes_in_order", "mark", "number"),
)
"""What the ledger has still to be told; a row goes when it is there."""

DENIAL_HEAD = Table(
    "denial_head",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("number", BigInteger, nullable=False),
    Column("told_changes", BigInteger, nullable=False, server_default="0"),
    Column("told_denials", BigInteger, nullable=False, server_default="0"),
    Column("went_back_at", BigInteger, nullable=True),
    Column("old_changes", BigInteger, nullable=True),
    Column("old_denials", BigInteger, nullable=True),
)
"""One row: denials that are no holds are counted here; up to which numbers the ledger may have been
told; since when this database is known to be old, and what it had told then.

Whoever counts one holds its lock until they commit."""

USED_CREDENTIALS = Table(
    "used_credentials",
    METADATA,
    Column("digest", String(64), primary_key=True),
    Column("expires_at", BigInteger, nullable=False),
    Index("used_credentials_expired", "expires_at"),
)

ONE_TIME_PASSWORDS = Table(
    "one_time_passwords",
    METADATA,
    Column("digest", String(64), primary_key=True),
    Column("iss", String(1024), nullable=False),
    Column("sub", String(255), nullable=False),
    Column("realm", String(63), nullable=False),
    Column("account", String(32), nullable=False),
    Column("host", String(255), nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Index("one_time_passwords_expired", "expires_at"),
)

ACCOUNT_REQUESTS = Table(
    "account_requests",
    METADATA,
    Column("iss", String(1024), primary_key=True),
    Column("sub", String(255), primary_key=True),
    Column("realm", String(63), primary_key=True),
    Column("asked_at", BigInteger, nullable=False),
    Column("asked_again_at", BigInteger, nullable=False),
)

HOST_ENROLMENTS = Table(
    "host_enrolments",
    METADATA,
    Column("digest", String(64), primary_key=True),
    Column("names", Text, nullable=False),
    Column("made_by", String(1400), nullable=False),
    Column("expires_at", BigInteger, nullable=False),
)

HOSTS = Table(
    "hosts",
    METADATA,
    Column("fingerprint", String(50), primary_key=True),
    Column("names", Text, nullable=False),
    Column("enrolled_by", String(1400), nullable=False),
    Column("enrolled_at", BigInteger, nullable=False),
    Column("renewed_at", BigInteger, nullable=False),
)

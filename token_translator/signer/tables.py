"""The tables of the ledger's database."""

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, MetaData, String, Table

METADATA = MetaData()

LEDGER = Table(
    "ledger",
    METADATA,
    # On SQLite the row's own number: an index less to write for each certificate.
    Column(
        "seq",
        BigInteger().with_variant(Integer, "sqlite"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("serial", BigInteger, unique=True, nullable=True),
    Column("at", BigInteger, nullable=False),
    Column("person", String(32), nullable=False, index=True),
    Column("entry", LargeBinary, nullable=False),
    Column("hash", String(64), nullable=False),
    Column("valid_before", BigInteger, nullable=True),
    Index("ix_ledger_live", "valid_before", "person"),
)

# What entries of the ledger say, kept so that it need not be read again: rebuilt from it at need.
REVOKED_SERIALS = Table(
    "revoked_serials",
    METADATA,
    Column("first", BigInteger, primary_key=True, autoincrement=False),
    Column("last", BigInteger, primary_key=True, autoincrement=False),
    Column("valid_before", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False),
)
REVOKED_KEYS = Table(
    "revoked_keys",
    METADATA,
    Column("fingerprint", String(64), primary_key=True),
    Column("seq", BigInteger, nullable=False),
)
AUTHORITIES = Table(
    "authorities",
    METADATA,
    Column("fingerprint", String(64), primary_key=True),
    Column("role", String(8), nullable=False),
    Column("line", String(4096), nullable=False),
    Column("state", String(16), nullable=False),
    Column("revoked", BigInteger, nullable=True),
    # Of a retired one: when the last certificate by it expires, at the latest.
    Column("last_expires", BigInteger, nullable=True),
)
HOST_KEYS = Table(
    "host_keys",
    METADATA,
    Column("fingerprint", String(64), primary_key=True),
    Column("seq", BigInteger, nullable=False),
)
MARKS = Table(
    "marks",
    METADATA,
    Column("name", String(64), primary_key=True),
    Column("value", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False),
)

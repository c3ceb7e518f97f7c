"""What is revoked, the authorities there were, hosts' keys; when each certificate expires."""

import json
from datetime import datetime

import sqlalchemy as sa
from alembic import op

revision = "ledger_0002"
down_revision = "ledger_0001"

_LEDGER = sa.table(
    "ledger",
    sa.column("seq", sa.BigInteger()),
    sa.column("serial", sa.BigInteger()),
    sa.column("entry", sa.LargeBinary()),
    sa.column("valid_before", sa.BigInteger()),
)


def upgrade() -> None:
    """Create the tables and the column; fill it from the entries."""
    op.add_column("ledger", sa.Column("valid_before", sa.BigInteger(), nullable=True))
    _fill()
    op.create_index("ix_ledger_live", "ledger", ["valid_before", "person"])
    op.create_table(
        "revoked_serials",
        sa.Column("first", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("last", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("valid_before", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "revoked_keys",
        sa.Column("fingerprint", sa.String(64), primary_key=True),
        sa.Column("seq", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "authorities",
        sa.Column("fingerprint", sa.String(64), primary_key=True),
        sa.Column("role", sa.String(8), nullable=False),
        sa.Column("line", sa.String(4096), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("revoked", sa.BigInteger(), nullable=True),
    )
    op.create_table(
        "host_keys",
        sa.Column("fingerprint", sa.String(64), primary_key=True),
        sa.Column("seq", sa.BigInteger(), nullable=False),
    )


def _fill() -> None:
    connection = op.get_bind()
    page = (
        sa.select(_LEDGER.c.seq, _LEDGER.c.entry)
        .where(_LEDGER.c.serial.is_not(None), _LEDGER.c.seq > sa.bindparam("last"))
        .order_by(_LEDGER.c.seq)
        .limit(1000)
    )
    change = (
        sa.update(_LEDGER)
        .where(_LEDGER.c.seq == sa.bindparam("at_seq"))
        .values(valid_before=sa.bindparam("expiry"))
    )
    last = 0
    while rows := connection.execute(page, {"last": last}).all():
        connection.execute(
            change, [{"at_seq": row.seq, "expiry": _expiry(row.entry)} for row in rows]
        )
        last = rows[-1].seq


def _expiry(entry: bytes) -> int:
    return int(datetime.fromisoformat(json.loads(entry)["valid_before"]).timestamp())


def downgrade() -> None:
    """Drop them."""
    for table in ("host_keys", "authorities", "revoked_keys", "revoked_serials"):
        op.drop_table(table)
    op.drop_index("ix_ledger_live", "ledger")
    op.drop_column("ledger", "valid_before")

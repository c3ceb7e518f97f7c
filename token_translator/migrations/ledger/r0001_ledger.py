"""The ledger: one hash-chained entry per certificate and refusal."""

import sqlalchemy as sa
from alembic import op

revision = "ledger_0001"
down_revision = None

# On SQLite the row's own number: an index less to write for each certificate.
_COUNTER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "ledger",
        sa.Column("seq", _COUNTER, primary_key=True, autoincrement=False),
        sa.Column("serial", sa.BigInteger(), unique=True, nullable=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("person", sa.String(32), nullable=False, index=True),
        sa.Column("entry", sa.LargeBinary(), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("ledger")

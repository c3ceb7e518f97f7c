"""Delegations that their owner ended, and services that are stopped."""

import sqlalchemy as sa
from alembic import op

revision = "seals_0004"
down_revision = "seals_0003"


def upgrade() -> None:
    """Add the column, its index and the table."""
    op.add_column("seals", sa.Column("ended_at", sa.BigInteger(), nullable=True))
    op.create_index("seals_of_a_person", "seals", ["iss", "sub", "sealed_at"])
    op.create_table(
        "stops",
        sa.Column("instance", sa.String(128), primary_key=True),
        sa.Column("reason", sa.String(1024), nullable=False),
        sa.Column("by", sa.String(1400), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_table("stops")
    op.drop_index("seals_of_a_person", "seals")
    op.drop_column("seals", "ended_at")

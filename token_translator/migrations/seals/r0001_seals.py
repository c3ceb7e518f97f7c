"""Seals: what a service may do later, one row each."""

import sqlalchemy as sa
from alembic import op

revision = "seals_0001"
down_revision = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "seals",
        sa.Column("instance", sa.String(128), primary_key=True),
        sa.Column("row", sa.Uuid(), primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("iss", sa.String(1024), nullable=False),
        sa.Column("sub", sa.String(255), nullable=False),
        sa.Column("realm", sa.String(63), nullable=False),
        sa.Column("client_id", sa.String(255), nullable=False),
        sa.Column("token", sa.String(16), nullable=False),
        sa.Column("sealed_at", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("seals")

"""Holds, the changes that the feed tells of, and revocations the signer has still to hear of."""

import sqlalchemy as sa
from alembic import op

revision = "seals_0002"
down_revision = "seals_0001"


def upgrade() -> None:
    """Create the tables; the feed begins at version 0."""
    op.create_table(
        "holds",
        sa.Column("id", sa.Uuid(), primary_key=True),
        sa.Column("iss", sa.String(1024), nullable=False),
        sa.Column("sub", sa.String(255), nullable=False),
        sa.Column("realm", sa.String(63), nullable=False),
        sa.Column("owner", sa.String(1400), nullable=False),
        sa.Column("reason", sa.String(1000), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("lifted_at", sa.BigInteger(), nullable=True),
        sa.Column("lifted_by", sa.String(1400), nullable=True),
    )
    op.create_index(
        "holds_in_force",
        "holds",
        ["iss", "sub", "realm", "owner"],
        unique=True,
        sqlite_where=sa.text("lifted_at IS NULL"),
        postgresql_where=sa.text("lifted_at IS NULL"),
    )
    op.create_table(
        "changes",
        sa.Column("version", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("iss", sa.String(1024), nullable=False),
        sa.Column("sub", sa.String(255), nullable=False),
        sa.Column("realm", sa.String(63), nullable=False),
        sa.Column("effective", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.String(1000), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
    )
    head = op.create_table(
        "change_head",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
    )
    op.bulk_insert(head, [{"id": 1, "version": 0}])
    op.create_table(
        "revocation_orders",
        sa.Column("id", sa.Uuid(), primary_key=True),
        sa.Column("iss", sa.String(1024), nullable=True),
        sa.Column("sub", sa.String(255), nullable=True),
        sa.Column("serials", sa.Text(), nullable=False),
        sa.Column("keys", sa.Text(), nullable=False),
        sa.Column("authority", sa.String(50), nullable=False),
        sa.Column("reason", sa.String(1000), nullable=False),
        sa.Column("ordered_by", sa.String(1400), nullable=False),
        sa.Column("ordered_at", sa.BigInteger(), nullable=False),
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_table("revocation_orders")
    op.drop_table("change_head")
    op.drop_table("changes")
    op.drop_index("holds_in_force", "holds")
    op.drop_table("holds")

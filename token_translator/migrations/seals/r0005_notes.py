"""What the ledger has still to be told, and until when a service's credential counts as used."""

import sqlalchemy as sa
from alembic import op

revision = "seals_0005"
down_revision = "seals_0004"


def upgrade() -> None:
    """Create the tables; denials are counted from 0."""
    op.create_table(
        "notes",
        sa.Column("id", sa.Uuid(), primary_key=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("event", sa.String(64), nullable=False),
        sa.Column("iss", sa.String(1024), nullable=False),
        sa.Column("sub", sa.String(255), nullable=False),
        sa.Column("realm", sa.String(63), nullable=False),
        sa.Column("instance", sa.String(128), nullable=False),
        sa.Column("row", sa.String(36), nullable=False),
        sa.Column("detail", sa.String(255), nullable=False),
        sa.Column("mark", sa.String(16), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
    )
    op.create_index("notes_in_order", "notes", ["mark", "number"])
    head = op.create_table(
        "denial_head",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("went_back_at", sa.BigInteger(), nullable=True),
        sa.Column("old_changes", sa.BigInteger(), nullable=True),
        sa.Column("old_denials", sa.BigInteger(), nullable=True),
    )
    op.bulk_insert(head, [{"id": 1, "number": 0}])
    op.create_table(
        "used_credentials",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
    )
    op.create_index("used_credentials_expired", "used_credentials", ["expires_at"])


def downgrade() -> None:
    """Drop them."""
    op.drop_index("used_credentials_expired", "used_credentials")
    op.drop_table("used_credentials")
    op.drop_table("denial_head")
    op.drop_index("notes_in_order", "notes")
    op.drop_table("notes")

"""One field key per person; deleting a row erases the person from the ledger."""

import sqlalchemy as sa
from alembic import op

revision = "persons_0001"
down_revision = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "persons",
        sa.Column("lookup", sa.String(64), primary_key=True),
        sa.Column("person", sa.String(32), unique=True, nullable=False),
        sa.Column("key", sa.LargeBinary(32), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("persons")

"""Which blocks the token translator was told of."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "holds",
        sa.Column("iss", sa.String(length=255), nullable=False),
        sa.Column("sub", sa.String(length=255), nullable=False),
        sa.Column("realm", sa.String(length=64), nullable=False),
        sa.Column("hold", sa.String(length=36), nullable=False),
        sa.Column("placed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("iss", "sub", "realm", name=op.f("pk_holds")),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("holds")

"""Orders to revoke what was made for one row: the end of a delegation."""

import sqlalchemy as sa
from alembic import op

revision = "seals_0006"
down_revision = "seals_0005"


def upgrade() -> None:
    """Add the column."""
    row = sa.Column("row", sa.String(36), nullable=False, server_default="")
    op.add_column("revocation_orders", row)


def downgrade() -> None:
    """Drop it."""
    op.drop_column("revocation_orders", "row")

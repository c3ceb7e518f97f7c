"""Whether the owner of a job wants it held back."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Expand."""
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("hold_requested", sa.Boolean(), nullable=True))


def downgrade() -> None:
    """Go back."""
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_column("hold_requested")

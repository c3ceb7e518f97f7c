"""When the files of a job were removed, or that they have to stay."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Expand."""
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("files_removed_at", sa.BigInteger(), nullable=True))
        batch_op.add_column(sa.Column("files_kept", sa.Boolean(), nullable=True))
        batch_op.create_index(
            "jobs_files", ["cluster", "files_removed_at", "ended_at"], unique=False
        )


def downgrade() -> None:
    """Go back."""
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_index("jobs_files")
        batch_op.drop_column("files_kept")
        batch_op.drop_column("files_removed_at")

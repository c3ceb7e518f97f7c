"""Labels, the queue of a job, and names of environments whose values are gone."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Expand."""
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("environment_names", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("queue", sa.String(length=255), nullable=True))
    op.create_table(
        "job_labels",
        sa.Column("job", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("value", sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"]),
        sa.PrimaryKeyConstraint("job", "name"),
    )
    op.create_index("job_labels_name_value", "job_labels", ["name", "value"], unique=False)


def downgrade() -> None:
    """Go back."""
    op.drop_index("job_labels_name_value", table_name="job_labels")
    op.drop_table("job_labels")
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_column("queue")
        batch_op.drop_column("environment_names")

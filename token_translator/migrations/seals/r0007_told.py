"""Up to which numbers the ledger may have been told, and who did what it is told of."""

import sqlalchemy as sa
from alembic import op

revision = "seals_0007"
down_revision = "seals_0006"


def upgrade() -> None:
    """Add the columns; what was counted so far may have been told."""
    op.add_column("notes", sa.Column("actor", sa.String(255), nullable=False, server_default=""))
    for name in ("told_changes", "told_denials"):
        told = sa.Column(name, sa.BigInteger(), nullable=False, server_default="0")
        op.add_column("denial_head", told)
    op.execute(
        "UPDATE denial_head SET told_denials = number, "
        "told_changes = (SELECT version FROM change_head)"
    )


def downgrade() -> None:
    """Drop them."""
    for name in ("told_denials", "told_changes"):
        op.drop_column("denial_head", name)
    op.drop_column("notes", "actor")

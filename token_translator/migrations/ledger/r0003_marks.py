"""How far the asking process was, by its own count; until when a retired authority counts."""

import sqlalchemy as sa
from alembic import op

revision = "ledger_0003"
down_revision = "ledger_0002"

_LEDGER = sa.table("ledger", sa.column("valid_before", sa.BigInteger()))
_AUTHORITIES = sa.table(
    "authorities", sa.column("state", sa.String(16)), sa.column("last_expires", sa.BigInteger())
)


def upgrade() -> None:
    """Create the table and the column; what was retired may live as long as anything does."""
    op.create_table(
        "marks",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
    )
    op.add_column("authorities", sa.Column("last_expires", sa.BigInteger(), nullable=True))
    longest = sa.select(sa.func.max(_LEDGER.c.valid_before)).scalar_subquery()
    op.execute(
        sa.update(_AUTHORITIES)
        .where(_AUTHORITIES.c.state == "retired")
        .values(last_expires=longest)
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_column("authorities", "last_expires")
    op.drop_table("marks")

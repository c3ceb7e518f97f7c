"""One-time passwords, requests for an account, and hosts that may have a certificate."""

import sqlalchemy as sa
from alembic import op

revision = "seals_0003"
down_revision = "seals_0002"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "one_time_passwords",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("iss", sa.String(1024), nullable=False),
        sa.Column("sub", sa.String(255), nullable=False),
        sa.Column("realm", sa.String(63), nullable=False),
        sa.Column("account", sa.String(32), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
    )
    op.create_index("one_time_passwords_expired", "one_time_passwords", ["expires_at"])
    op.create_table(
        "account_requests",
        sa.Column("iss", sa.String(1024), primary_key=True),
        sa.Column("sub", sa.String(255), primary_key=True),
        sa.Column("realm", sa.String(63), primary_key=True),
        sa.Column("asked_at", sa.BigInteger(), nullable=False),
        sa.Column("asked_again_at", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "host_enrolments",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("names", sa.Text(), nullable=False),
        sa.Column("made_by", sa.String(1400), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "hosts",
        sa.Column("fingerprint", sa.String(50), primary_key=True),
        sa.Column("names", sa.Text(), nullable=False),
        sa.Column("enrolled_by", sa.String(1400), nullable=False),
        sa.Column("enrolled_at", sa.BigInteger(), nullable=False),
        sa.Column("renewed_at", sa.BigInteger(), nullable=False),
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_table("hosts")
    op.drop_table("host_enrolments")
    op.drop_table("account_requests")
    op.drop_index("one_time_passwords_expired", "one_time_passwords")
    op.drop_table("one_time_passwords")

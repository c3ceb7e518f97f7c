"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "accounts",
        sa.Column("iss", sa.String(length=255), nullable=False),
        sa.Column("sub", sa.String(length=255), nullable=False),
        sa.Column("realm", sa.String(length=64), nullable=False),
        sa.Column("account", sa.String(length=64), nullable=False),
        sa.Column("uid", sa.Integer(), nullable=False),
        sa.Column("gid", sa.Integer(), nullable=False),
        sa.Column("home", sa.Text(), nullable=False),
        sa.Column("shell", sa.Text(), nullable=False),
        sa.Column("owned", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("applied", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.String(length=64), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("iss", "sub", "realm", name=op.f("pk_accounts")),
    )
    with op.batch_alter_table("accounts", schema=None) as batch_op:
        batch_op.create_index(
            "uq_accounts_owned_account",
            ["realm", "account"],
            unique=True,
            sqlite_where=sa.text("owned"),
            postgresql_where=sa.text("owned"),
        )
        batch_op.create_index(
            "uq_accounts_owned_uid",
            ["realm", "uid"],
            unique=True,
            sqlite_where=sa.text("owned"),
            postgresql_where=sa.text("owned"),
        )

    op.create_table(
        "counters",
        sa.Column("realm", sa.String(length=64), nullable=False),
        sa.Column("next_id", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("realm", name=op.f("pk_counters")),
    )
    op.create_table(
        "people",
        sa.Column("iss", sa.String(length=255), nullable=False),
        sa.Column("sub", sa.String(length=255), nullable=False),
        sa.Column("realm", sa.String(length=64), nullable=False),
        sa.Column("user_name", sa.String(length=255), nullable=False),
        sa.Column("groups", sa.Text(), nullable=False),
        sa.Column("end_time", sa.DateTime(timezone=True), nullable=True),
        sa.Column("denial", sa.String(length=32), nullable=False),
        sa.Column("first_seen", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen", sa.DateTime(timezone=True), nullable=False),
        sa.Column("eligible_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("refusal", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("iss", "sub", "realm", name=op.f("pk_people")),
    )
    op.create_table(
        "plans",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("realm", sa.String(length=64), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("approved_by", sa.String(length=255), nullable=False),
        sa.Column("approved_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_plans")),
    )
    op.create_table(
        "pulls",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("realm", sa.String(length=64), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("seen", sa.Integer(), nullable=False),
        sa.Column("denied", sa.Integer(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pulls")),
    )
    op.create_table(
        "journal",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["digest"], ["plans.digest"], name=op.f("fk_journal_digest")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_journal")),
        sa.UniqueConstraint("digest", "seq", name=op.f("uq_journal_digest_seq")),
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_table("journal")
    op.drop_table("pulls")
    op.drop_table("plans")
    op.drop_table("people")
    op.drop_table("counters")
    with op.batch_alter_table("accounts") as batch_op:
        batch_op.drop_index(
            "uq_accounts_owned_uid",
            sqlite_where=sa.text("owned"),
            postgresql_where=sa.text("owned"),
        )
        batch_op.drop_index(
            "uq_accounts_owned_account",
            sqlite_where=sa.text("owned"),
            postgresql_where=sa.text("owned"),
        )

    op.drop_table("accounts")

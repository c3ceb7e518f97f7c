"""How alembic runs a history: on the connection it is handed, in that connection's transaction."""

from alembic import context


def run() -> None:
    """Run the migrations; without a connection there is nothing to run them on.

    Raises:
        RuntimeError: this was started by the alembic command; use `migrate` of the service.
    """
    connection = context.config.attributes.get("connection")
    if connection is None:
        raise RuntimeError("run `headgate-tokens migrate` or `headgate-signer migrate`")
    context.configure(connection=connection)
    with context.begin_transaction():
        context.run_migrations()


run()

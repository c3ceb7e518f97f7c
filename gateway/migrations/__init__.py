"""The history of the gateway's database, applied by hand: `headgate-gateway migrate`."""

from pathlib import Path

from alembic import command
from alembic.config import Config


def upgrade(url: str) -> None:
    """Bring a database (a SQLAlchemy URL) to this release's tables."""
    command.upgrade(configuration(url), "head")


def configuration(url: str) -> Config:
    """The configuration of alembic for a database; there is no ini file."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    return config

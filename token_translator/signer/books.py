"""Everything the signer writes, open: ledger, persons, and how far the ledger was written."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from headgate.settings import SettingsError
from token_translator.database import open_database, require_current, require_durable
from token_translator.signer.entries import Head
from token_translator.signer.files import read_private, write_new
from token_translator.signer.ledger import Ledger
from token_translator.signer.persons import Persons
from token_translator.signer.position import Position, encode
from token_translator.signer.settings import SignerSettings
from token_translator.starting import StartError

INDEX_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Books:
    """The ledger, the persons in it, and where its end is remembered."""

    ledger: Ledger
    persons: Persons
    position: Position


@contextlib.contextmanager
def opened(settings: SignerSettings, *, whole: bool = True) -> Iterator[Books]:
    """Everything that is written, open; `whole`: refuse a ledger that was restored.

    Raises:
        SettingsError: a file or a database is not as the settings say.
    """
    index_key = read_private(Path(settings.index_key))
    if len(index_key) != INDEX_KEY_BYTES:
        raise SettingsError(f"{settings.index_key}: not {INDEX_KEY_BYTES} bytes")
    with contextlib.ExitStack() as stack:
        engines = []
        for url, history in ((settings.ledger, "ledger"), (settings.persons, "persons")):
            engines.append(open_current(url, history))
            stack.callback(engines[-1].dispose)
        position = Position(settings.position_file)
        stack.callback(position.close)
        persons = Persons(engine=engines[1], index_key=index_key)
        ledger = Ledger(
            engine=engines[0],
            persons=persons,
            position=position,
            serial_floor=settings.serial_floor,
        )
        if whole:
            ledger.require_whole()
        yield Books(ledger, persons, position)


def open_current(url: str, history: str) -> Engine:
    """A database that is as it should be.

    Raises:
        SettingsError: its tables are of another version, or its commits do not last.
        StartError: it is away.
    """
    engine = open_database(url)
    try:
        with engine.connect() as connection:
            require_current(connection, history, "headgate-signer migrate")
            require_durable(connection)
    except OperationalError as error:
        # No fault of the settings: a supervisor tries again.
        raise StartError(f"the database of {history} is away: {error.orig}") from error
    return engine


def position(path: Path, head: Head) -> Path:
    """The file of a position, made with `head` in it where there is none."""
    if not path.exists():
        write_new(path, encode(head), 0o600)
    return path

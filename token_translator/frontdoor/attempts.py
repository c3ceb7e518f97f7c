"""Failed logins by address and logins by identity, in a file: a restart forgives nobody.

Beside them, from where an identity has logged in by browser: that is what is phished.
"""

import hashlib
import os
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from headgate.clock import Clock
from headgate.identity import Identity
from headgate.settings import SettingsError
from token_translator.frontdoor.limits import LimitSettings

MINUTE = 60.0
DEVICE_CODES_PER_MINUTE = 6
"""Codes that the issuer is asked for on behalf of one address."""
MAX_ROWS = 100_000
"""What an attacker with many addresses can make us keep."""
_VERSION = 1
_TABLE = """
CREATE TABLE IF NOT EXISTS attempts (name TEXT NOT NULL, at REAL NOT NULL);
CREATE INDEX IF NOT EXISTS attempts_of ON attempts (name, at);
CREATE INDEX IF NOT EXISTS attempts_at ON attempts (at);
CREATE TABLE IF NOT EXISTS sources (
    name TEXT NOT NULL, source TEXT NOT NULL, at REAL NOT NULL, told INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (name, source)
);
"""


def check_place(path: Path) -> None:
    """Whether the file can be there; nothing is made or changed.

    Raises:
        SettingsError: naming what is missing, or closed to us.
    """
    folder = path.parent
    try:
        if not folder.is_dir():
            raise SettingsError(f"state: {folder}: no such folder; make it, this user's, mode 0700")
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise SettingsError(f"state: {folder}: this user may not write there")
        if path.exists() and not path.is_file():
            raise SettingsError(f"state: {path}: not a file")
        if path.exists() and not os.access(path, os.R_OK | os.W_OK):
            raise SettingsError(f"state: {path}: not this user's to read and write")
    except OSError as error:
        raise SettingsError(f"state: {error.filename}: {error.strerror}") from error


class Attempts:
    """Counts in one SQLite file, kept as long as the longer of the two windows.

    It is a cache of this one process: no other reads it, and losing it means to count afresh.
    People are in it as fingerprints only.

    Raises:
        SettingsError: the file cannot be used.
    """

    def __init__(self, *, path: Path, limits: LimitSettings, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._keep = max(float(limits.failure_window), MINUTE)
        try:
            self._database = sqlite3.connect(path, isolation_level=None)
            # A power cut may forget the last attempts; a kill of this process does not.
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = NORMAL")
            if self._one("PRAGMA user_version") not in {0, _VERSION}:
                raise SettingsError(f"{path}: written by another version; remove it")
            self._database.executescript(_TABLE)
            self._database.execute(f"PRAGMA user_version = {_VERSION}")
        except sqlite3.Error as error:
            raise SettingsError(f"{path}: {error}") from error

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def closed_for(self, source: str) -> float:
        """Seconds for which the door stays closed to an address; 0: it is open."""
        return self._wait(f"address {source}", self._limits.failures, self._limits.failure_window)

    def failed(self, source: str) -> bool:
        """Count a failed login; True if it is the one that closes the door to its address."""
        self._add(f"address {source}")
        return self.closed_for(source) > 0

    def login(self, identity: Identity) -> float:
        """Count a login and return 0; or, if there were too many, the seconds to wait."""
        name = f"identity {_fingerprint(identity)}"
        wait = self._wait(name, self._limits.logins_per_minute, MINUTE)
        if not wait:
            self._add(name)
        return wait

    def device_code(self, source: str) -> bool:
        """Count a code for an address; False if it has had too many."""
        name = f"device {source}"
        if self._wait(name, DEVICE_CODES_PER_MINUTE, MINUTE):
            return False
        self._add(name)
        return True

    def logged_in_by_browser(self, identity: Identity, source: str) -> bool:
        """Remember from where; True if they never did from there."""
        at = self._clock.now().timestamp()
        cursor = self._database.execute(
            "INSERT OR IGNORE INTO sources (name, source, at) VALUES (?, ?, ?)",
            (_fingerprint(identity), source, at),
        )
        return cursor.rowcount > 0

    def untold(self, identity: Identity) -> Sequence[tuple[str, datetime]]:
        """New addresses, and since when, that the person was not told of; now they are."""
        rows = self._database.execute(
            "UPDATE sources SET told = 1 WHERE name = ? AND told = 0 RETURNING source, at",
            (_fingerprint(identity),),
        ).fetchall()
        return [(str(source), datetime.fromtimestamp(at, UTC)) for source, at in rows]

    def _wait(self, name: str, most: int, window: float) -> float:
        now = self._clock.now().timestamp()
        row = self._database.execute(
            # What is in the future was written before the clock was set back.
            "SELECT at FROM attempts WHERE name = ? AND at > ? AND at <= ? "
            "ORDER BY at DESC LIMIT 1 OFFSET ?",
            (name, now - window, now, most - 1),
        ).fetchone()
        return float(row[0]) + window - now if row else 0.0

    def _add(self, name: str) -> None:
        now = self._clock.now().timestamp()
        self._database.execute("INSERT INTO attempts VALUES (?, ?)", (name, now))
        self._database.execute("DELETE FROM attempts WHERE at <= ?", (now - self._keep,))
        self._database.execute(
            "DELETE FROM attempts WHERE at <= "
            "(SELECT at FROM attempts ORDER BY at DESC LIMIT 1 OFFSET ?)",
            (MAX_ROWS,),
        )

    def _one(self, query: str) -> int:
        return int(self._database.execute(query).fetchone()[0])


def _fingerprint(identity: Identity) -> str:
    return hashlib.sha256(f"{identity.iss}\0{identity.sub}".encode()).hexdigest()[:32]

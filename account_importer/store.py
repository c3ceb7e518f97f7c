"""The registry's database: SQLAlchemy over SQLite (WAL) or PostgreSQL, one transaction a verb."""

import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Row, Table, and_, delete, event, func, insert, make_url, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from account_importer.directory import Entry, Person
from account_importer.hold_store import HoldBook
from account_importer.plan import Plan
from account_importer.tables import (
    ONE_ENTRY,
    ONE_PERSON,
    accounts,
    counters,
    entry_of,
    identity_of,
    journal,
    people,
    person_of,
    plans,
    pulls,
)
from headgate.identity import Identity
from headgate.settings import SettingsError

BUSY_SECONDS = 15
KEPT_PULLS = 1000


class StoreError(Exception):
    """The database is away, locked for too long, or not what it should be."""


class PlanState(StrEnum):
    """Where a plan stands; one that failed in part stays `applying` and is gone on with."""

    PROPOSED = "proposed"
    APPROVED = "approved"
    APPLYING = "applying"
    APPLIED = "applied"
    STOPPED = "stopped"
    REFUSED = "refused"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """A row of `plans`: what is in it is only believed after its hash was computed again."""

    digest: str
    document: bytes
    state: PlanState
    made_at: datetime
    approved_by: str
    detail: str


@dataclass(frozen=True, slots=True)
class LastPull:
    """How the last reading of the source went."""

    at: datetime
    outcome: str
    seen: int
    denied: int
    detail: str


class Store:
    """Hands out transactions; in SQLite a writing one takes the lock when it begins."""

    def __init__(self, url: str) -> None:
        arguments = {"timeout": BUSY_SECONDS} if url.startswith("sqlite") else {}
        self._reading: AsyncEngine = create_async_engine(url, connect_args=arguments)
        self._writing = self._reading.execution_options(headgate_writes=True)
        if url.startswith("sqlite"):
            event.listen(self._reading.sync_engine, "connect", _prepare)
            event.listen(self._reading.sync_engine, "begin", _begin)

    async def close(self) -> None:
        """Close all connections."""
        await self._reading.dispose()

    @contextlib.asynccontextmanager
    async def reading(self, realm: str) -> AsyncIterator["Book"]:
        """One consistent view."""
        with _faults():
            async with self._reading.connect() as connection, connection.begin():
                yield Book(connection, realm)

    @contextlib.asynccontextmanager
    async def writing(self, realm: str) -> AsyncIterator["Book"]:
        """One transaction, committed at the end, rolled back by an exception."""
        with _faults():
            async with self._writing.begin() as connection:
                yield Book(connection, realm)

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        """A writing connection, for migrations."""
        with _faults():
            async with self._writing.begin() as connection:
                yield connection


def database_file(url: str) -> Path | None:
    """Where an SQLite database lies; None for a server's.

    Raises:
        SettingsError: this is not a database URL.
    """
    try:
        parsed = make_url(url)
    except SQLAlchemyError as error:
        raise SettingsError(f"database: {error}") from error
    sqlite_file = parsed.get_backend_name() == "sqlite"
    return Path(parsed.database or "").absolute() if sqlite_file else None


@contextlib.contextmanager
def _faults() -> Iterator[None]:
    """The driver's errors as the store's one."""
    try:
        yield
    except SQLAlchemyError as error:
        raise StoreError(f"the database cannot be used: {error}") from error


def _prepare(connection: Any, _: object) -> None:  # noqa: ANN401 - whatever the driver has
    # The driver must not begin transactions of its own: `_begin` does.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")  # a committed journal row survives a power cut
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("headgate_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


class Book:
    """What can be read and written within one transaction, for one realm."""

    def __init__(self, connection: AsyncConnection, realm: str) -> None:
        self._connection = connection
        self._realm = realm
        self.holds = HoldBook(connection, realm)

    async def people(self) -> dict[Identity, Person]:
        """Everybody who ever had a right to an account."""
        rows = await self._connection.execute(select(people).where(people.c.realm == self._realm))
        return {identity_of(row): person_of(row) for row in rows}

    async def entries(self) -> dict[Identity, Entry]:
        """The whole registry."""
        rows = await self._connection.execute(
            select(accounts).where(accounts.c.realm == self._realm)
        )
        return {identity_of(row): entry_of(row) for row in rows}

    async def find(self, identity: Identity) -> tuple[Person | None, Entry | None]:
        """One identity."""
        asked = {"iss": identity.iss, "sub": identity.sub, "realm": self._realm}
        row = (await self._connection.execute(ONE_PERSON, asked)).one_or_none()
        person = person_of(row) if row else None
        row = (await self._connection.execute(ONE_ENTRY, asked)).one_or_none()
        return person, entry_of(row) if row else None

    async def find_account(self, name: str, limit: int) -> list[tuple[Person | None, Entry]]:
        """Whose a local account is: several people may share one that the site made itself."""
        here = and_(accounts.c.realm == self._realm, accounts.c.account == name)
        rows = await self._connection.execute(
            select(accounts).where(here).order_by(accounts.c.iss, accounts.c.sub).limit(limit)
        )
        found = [await self.find(identity_of(row)) for row in rows]
        return [(person, entry) for person, entry in found if entry is not None]

    async def put_people(self, found: Iterable[Person]) -> None:
        """Insert or replace."""
        rows = [
            {
                "iss": person.identity.iss,
                "sub": person.identity.sub,
                "realm": self._realm,
                "user_name": person.user_name,
                "groups": msgspec.json.encode(sorted(person.groups)).decode(),
                "end_time": person.end_time,
                "denial": person.denial.value,
                "first_seen": person.first_seen,
                "last_seen": person.last_seen,
                "eligible_since": person.eligible_since,
                "refusal": person.refusal,
            }
            for person in found
        ]
        await self._upsert(people, rows)

    async def put_entries(self, made: Iterable[Entry], now: datetime) -> None:
        """Insert or replace."""
        rows = [
            {
                "iss": entry.identity.iss,
                "sub": entry.identity.sub,
                "realm": self._realm,
                "account": entry.account,
                "uid": entry.uid,
                "gid": entry.gid,
                "home": entry.home,
                "shell": entry.shell,
                "owned": entry.owned,
                "state": entry.state.value,
                "applied": entry.applied.value,
                "reason": entry.reason,
                "version": entry.version,
                "changed_at": now,
            }
            for entry in made
        ]
        await self._upsert(accounts, rows)

    async def set_refusals(self, refusals: Mapping[Identity, str]) -> None:
        """Exactly these people wait for a decision, for these reasons."""
        mine = people.c.realm == self._realm
        await self._connection.execute(
            update(people).where(mine, people.c.refusal != "").values(refusal="")
        )
        for identity, reason in refusals.items():
            one = and_(mine, people.c.iss == identity.iss, people.c.sub == identity.sub)
            await self._connection.execute(update(people).where(one).values(refusal=reason))

    async def next_id(self) -> int:
        """The counter; 0 before its first use."""
        row = await self._connection.scalar(
            select(counters.c.next_id).where(counters.c.realm == self._realm)
        )
        return row or 0

    async def set_next_id(self, number: int) -> None:
        """Move the counter on; it never goes back."""
        if number > await self.next_id():
            await self._upsert(counters, [{"realm": self._realm, "next_id": number}])

    async def plan(self, digest: str) -> StoredPlan | None:
        """By its hash."""
        row = (
            await self._connection.execute(
                select(plans).where(plans.c.digest == digest, plans.c.realm == self._realm)
            )
        ).one_or_none()
        return _stored(row) if row else None

    async def plans(self, states: Sequence[PlanState]) -> list[StoredPlan]:
        """Those in a state, oldest first."""
        rows = await self._connection.execute(
            select(plans)
            .where(plans.c.realm == self._realm, plans.c.state.in_(states))
            .order_by(plans.c.made_at, plans.c.digest)
        )
        return [_stored(row) for row in rows]

    async def plan_states(self, states: Sequence[PlanState]) -> set[PlanState]:
        """Which of these states some plan is in; the plans themselves can be long."""
        found = await self._connection.scalars(
            select(plans.c.state)
            .where(plans.c.realm == self._realm, plans.c.state.in_(states))
            .distinct()
        )
        return {PlanState(state) for state in found}

    async def propose(self, plan: Plan, now: datetime) -> PlanState:
        """Store a plan, which supersedes those nobody approved; what state it is in now."""
        await self._connection.execute(
            update(plans)
            .where(
                plans.c.realm == self._realm,
                plans.c.state == PlanState.PROPOSED,
                plans.c.digest != plan.digest,
            )
            .values(state=PlanState.SUPERSEDED, ended_at=now)
        )
        if not plan.changes:
            return PlanState.APPLIED
        known = await self.plan(plan.digest)
        if known is None:
            await self._connection.execute(
                insert(plans).values(
                    digest=plan.digest,
                    realm=self._realm,
                    document=plan.canonical().decode(),
                    state=PlanState.PROPOSED,
                    made_at=now,
                )
            )
            return PlanState.PROPOSED
        if known.state in {PlanState.SUPERSEDED, PlanState.STOPPED, PlanState.APPLIED}:
            await self.set_plan(plan.digest, PlanState.PROPOSED, made_at=now, ended_at=None)
            return PlanState.PROPOSED
        return known.state

    async def set_plan(self, digest: str, state: PlanState, **values: object) -> None:
        """Move a plan to a state."""
        await self._connection.execute(
            update(plans).where(plans.c.digest == digest).values(state=state, **values)
        )

    async def journal(self, digest: str) -> dict[int, str]:
        """How far each change of a plan has come."""
        rows = await self._connection.execute(
            select(journal.c.seq, journal.c.state).where(journal.c.digest == digest)
        )
        return {row.seq: row.state for row in rows}

    async def start_change(self, digest: str, seq: int, now: datetime) -> None:
        """Write down that a change is about to be made."""
        again = await self._connection.execute(
            update(journal)
            .where(journal.c.digest == digest, journal.c.seq == seq)
            .values(state="started", started_at=now, ended_at=None, tries=journal.c.tries + 1)
        )
        if not again.rowcount:
            await self._connection.execute(
                insert(journal).values(digest=digest, seq=seq, state="started", started_at=now)
            )

    async def end_change(self, digest: str, seq: int, detail: str, now: datetime) -> None:
        """Write down that it is done, or by `detail` why it failed."""
        await self._connection.execute(
            update(journal)
            .where(journal.c.digest == digest, journal.c.seq == seq)
            .values(state="failed" if detail else "done", ended_at=now, detail=detail)
        )

    async def record_pull(self, pull: LastPull) -> None:
        """Write down how a reading went; the oldest ones are dropped."""
        await self._connection.execute(
            insert(pulls).values(
                realm=self._realm,
                at=pull.at,
                outcome=pull.outcome,
                seen=pull.seen,
                denied=pull.denied,
                detail=pull.detail,
            )
        )
        newest = await self._connection.scalar(select(func.max(pulls.c.id)))
        await self._connection.execute(delete(pulls).where(pulls.c.id <= newest - KEPT_PULLS))

    async def last_pull(self) -> LastPull | None:
        """The newest one."""
        row = (
            await self._connection.execute(
                select(pulls).where(pulls.c.realm == self._realm).order_by(pulls.c.id.desc())
            )
        ).first()
        return LastPull(row.at, row.outcome, row.seen, row.denied, row.detail) if row else None

    async def _upsert(self, table: Table, rows: list[dict[str, Any]]) -> None:
        """INSERT … ON CONFLICT (primary key) DO UPDATE, which both databases have."""
        if not rows:
            return
        on_sqlite = self._connection.dialect.name == "sqlite"
        statement = (sqlite.insert if on_sqlite else postgresql.insert)(table)
        keys = [column.name for column in table.primary_key]
        changed = {
            column.name: statement.excluded[column.name]
            for column in table.columns
            if column.name not in keys
        }
        await self._connection.execute(
            statement.on_conflict_do_update(index_elements=keys, set_=changed), rows
        )


def _stored(row: Row[Any]) -> StoredPlan:
    return StoredPlan(
        digest=row.digest,
        document=row.document.encode(),
        state=PlanState(row.state),
        made_at=row.made_at,
        approved_by=row.approved_by,
        detail=row.detail,
    )

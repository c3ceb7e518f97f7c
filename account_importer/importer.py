"""The verbs: pull, plan, approve and apply; each reads, decides purely, and writes once."""

import pwd
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import structlog

from account_importer.directory import (
    Change,
    Denial,
    Entry,
    Facts,
    Kind,
    Person,
    Source,
    SourceError,
    SourceUser,
    State,
    Target,
    TargetError,
    TargetRefusedError,
)
from account_importer.eligibility import Reading, alarm, read
from account_importer.executor import ExecutorGoneError
from account_importer.mapping import LookUp, link
from account_importer.names import derive
from account_importer.plan import (
    Plan,
    Refusal,
    Rules,
    approves,
    compute,
    decode,
    outstanding,
    reserve,
    wanted,
)
from account_importer.settings import Settings
from account_importer.store import Book, LastPull, PlanState, Store, StoredPlan
from headgate.clock import Clock
from headgate.identity import Identity

log = structlog.get_logger(__name__)

CONFIRMATIONS = 3
BY_RULE = "the rule in [approval]"


class BrakedError(Exception):
    """A reading was not believed: it would deny too many at once."""


class NoSuchPlanError(Exception):
    """There is no plan of that hash that could be approved."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What `plan` found: the plan, where it stands, who approved it (or ""), who is refused."""

    plan: Plan
    state: PlanState
    approved_by: str
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True)
class Applied:
    """What `apply` did about one plan; `problems` are drift, the policy's reasons, or failures."""

    digest: str
    state: PlanState
    made: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Decision:
    """What should be done at this moment: the plan, and what has to be written before it counts."""

    plan: Plan
    refusals: tuple[Refusal, ...]
    made: tuple[Entry, ...]
    next_id: int
    entries: Mapping[Identity, Entry]


class Importer:
    """One realm's importer."""

    def __init__(
        self,
        *,
        settings: Settings,
        store: Store,
        source: Source,
        target: Target,
        clock: Clock,
        look_up: LookUp = pwd.getpwnam,
    ) -> None:
        self._settings = settings
        self._store = store
        self._source = source
        self._target = target
        self._clock = clock
        self._look_up = look_up
        self._realm = settings.realm
        self._rules = Rules(settings.realm, settings.ids, settings.accounts)

    async def pull(self, *, allow: int | None = None) -> LastPull:
        """Read the source and block at once who may not act any more.

        `allow` is an administrator's word that so many may be denied this time.

        Raises:
            SourceError: the source could not be read whole; nothing was changed.
            BrakedError: too many would be denied at once; nothing was changed.
        """
        try:
            return await self._pull(allow)
        except (SourceError, BrakedError) as error:
            outcome = "braked" if isinstance(error, BrakedError) else "failed"
            pull = LastPull(self._clock.now(), outcome, 0, 0, str(error))
            async with self._store.writing(self._realm) as book:
                await book.record_pull(pull)
            raise

    async def _pull(self, allow: int | None) -> LastPull:
        for _ in range(CONFIRMATIONS):
            users = await self._source.users()
            async with self._store.reading(self._realm) as book:
                reading = await self._read(book, users)
                active = _active(await book.entries())
            self._brake(len(users), active, reading, allow)
            if await self._absences_hold(reading):
                break
        else:
            raise SourceError("users are missing from the list and there when asked for")
        now = self._clock.now()
        async with self._store.writing(self._realm) as book:
            reading = await self._read(book, users)
            entries = await book.entries()
            self._brake(len(users), _active(entries), reading, allow)
            await book.put_people(reading.people)
            await book.put_entries([_blocked(entry, why) for entry, why in reading.denied], now)
            pull = LastPull(now, "ok", len(users), len(reading.denied), "")
            await book.record_pull(pull)
        for entry, why in reading.denied:
            log.warning("blocked", account=entry.account, sub=entry.identity.sub, reason=why.value)
        return pull

    async def _read(self, book: Book, users: Iterable[SourceUser]) -> Reading:
        return read(
            iss=self._settings.source.issuer,
            users=users,
            known=await book.people(),
            entries=await book.entries(),
            groups_any=self._settings.source.groups_any,
            now=self._clock.now(),
        )

    def _brake(self, seen: int, active: int, reading: Reading, allow: int | None) -> None:
        reason = alarm(
            seen=seen,
            active=active,
            denied=len(reading.denied),
            brake=self._settings.brake,
            allowed=allow,
        )
        if reason:
            log.error("mass_denial_stopped", realm=self._realm, reason=reason)
            raise BrakedError(reason)

    async def _absences_hold(self, reading: Reading) -> bool:
        """Ask for each missing account holder by id: rows can slip between two pages unseen."""
        for entry, why in reading.denied:
            if why is Denial.ABSENT and not await self._source.absent(entry.identity.sub):
                log.info("source_drifted_while_read", sub=entry.identity.sub)
                return False
        return True

    async def plan(self) -> Planned:
        """Reserve names and numbers for newcomers, make a plan, approve it if the rule says so.

        Works on what `pull` read last; asks the target, changes nothing there.
        """
        facts = await self._observe()
        now = self._clock.now()
        async with self._store.writing(self._realm) as book:
            decision = await self._decide(book, facts)
            plan, refusals = decision.plan, decision.refusals
            await book.put_entries(decision.made, now)
            await book.set_next_id(decision.next_id)
            await book.set_refusals({refusal.identity: refusal.reason for refusal in refusals})
            state = await book.propose(plan, now)
            rule = self._settings.approval
            if state is PlanState.PROPOSED and rule.kinds and approves(plan, rule):
                state = PlanState.APPROVED
                await book.set_plan(plan.digest, state, approved_by=BY_RULE, approved_at=now)
            stored = await book.plan(plan.digest)
        log.info("planned", plan=plan.digest, changes=len(plan.changes), state=state.value)
        return Planned(plan, state, (stored and stored.approved_by) or "", refusals)

    async def _decide(self, book: Book, facts: Facts) -> "_Decision":
        """What is to be done now; nothing is written."""
        people, entries = await book.people(), await book.entries()
        number = await book.next_id()
        if self._settings.mode == "mapping":
            made, refused = link(people.values(), entries, self._settings.mapping, self._look_up)
        else:
            made, refused = reserve(people.values(), entries, facts, number, self._rules)
            number = max([number, *(entry.uid + 1 for entry in made)])
        entries |= {entry.identity: entry for entry in made}
        decided = {refusal.identity: refusal for refusal in refused}
        plan, contradicted = compute(people, entries, facts, self._realm, decided)
        refusals = {refusal.identity: refusal for refusal in contradicted} | decided
        return _Decision(plan, tuple(refusals.values()), tuple(made), number, entries)

    async def _observe(self) -> Facts:
        """The target, asked also for every name and number that may be given next."""
        if self._settings.mode == "mapping":
            return Facts()
        async with self._store.reading(self._realm) as book:
            people, entries = await book.people(), await book.entries()
            number = max(await book.next_id(), self._settings.ids.first)
        waiting = wanted(people.values(), entries)
        names = {entry.account for entry in entries.values()}
        names |= {name for person in waiting if (name := self._name(person))}
        ids = {entry.uid for entry in entries.values() if entry.state is State.RESERVED}
        ids |= set(range(number, number + len(waiting)))
        return await self._target.observe(sorted(names), sorted(ids))

    def _name(self, person: Person) -> str:
        try:
            decided = self._settings.accounts.names.get(person.identity.sub)
            return decided or derive(person.user_name)
        except ValueError:
            return ""  # `reserve` refuses this person with the reason

    async def approve(self, digest: str, by: str) -> StoredPlan:
        """Approve the plan whose hash begins with `digest` (at least 8 digits).

        Raises:
            NoSuchPlanError: none, several, one that was superseded, or one that is not its hash.
        """
        async with self._store.writing(self._realm) as book:
            waiting = await book.plans([PlanState.PROPOSED, PlanState.REFUSED])
            found = [p for p in waiting if len(digest) >= 8 and p.digest.startswith(digest)]  # noqa: PLR2004 - as the docstring says
            if len(found) != 1:
                raise NoSuchPlanError(f"no plan {digest} waits for approval; make one with `plan`")
            stored = found[0]
            try:
                decode(stored.document, stored.digest)
            except ValueError as error:
                raise NoSuchPlanError(f"plan {digest}: {error}") from error
            await book.set_plan(
                stored.digest,
                PlanState.APPROVED,
                approved_by=by,
                approved_at=self._clock.now(),
                detail="",
            )
        log.info("approved", plan=stored.digest, by=by)
        return stored

    async def apply(self) -> list[Applied]:
        """Carry out the approved plans; one that is interrupted is gone on with.

        The source and the target are read again first. A plan that does not hold any more as a
        whole is stopped before its first change.

        Raises:
            SourceError, BrakedError: as `pull`; nothing is applied then.
            ExecutorGoneError: the root part ended; the next run goes on.
        """
        await self.pull()
        async with self._store.reading(self._realm) as book:
            open_plans = await book.plans([PlanState.APPROVED, PlanState.APPLYING])
        return [await self._apply(stored) for stored in open_plans]

    async def _apply(self, stored: StoredPlan) -> Applied:
        digest = stored.digest
        try:
            plan = decode(stored.document, digest)
        except ValueError as error:
            return await self._end(digest, PlanState.REFUSED, 0, [str(error)])
        facts = await self._observe()
        async with self._store.reading(self._realm) as book:
            now = await self._decide(book, facts)
        todo, drift = outstanding(plan, now.plan, now.entries)
        if drift:
            return await self._end(digest, PlanState.STOPPED, 0, drift)
        try:
            await self._target.begin(stored.document, digest)
        except TargetRefusedError as error:
            return await self._end(digest, PlanState.REFUSED, 0, error.reasons)
        async with self._store.writing(self._realm) as book:
            await book.set_plan(digest, PlanState.APPLYING)
        failures = [words for seq in todo if (words := await self._make(digest, seq, plan))]
        made = len(todo) - len(failures)
        state = PlanState.APPLYING if failures else PlanState.APPLIED
        return await self._end(digest, state, made, failures)

    async def _make(self, digest: str, seq: int, plan: Plan) -> str:
        """One change: written down, made, written down; why it failed, or an empty string."""
        change = plan.changes[seq]
        async with self._store.writing(self._realm) as book:
            await book.start_change(digest, seq, self._clock.now())
        failure = ""
        try:
            await self._target.carry_out(seq)
        except ExecutorGoneError:
            raise
        except TargetError as error:
            failure = str(error)
        now = self._clock.now()
        async with self._store.writing(self._realm) as book:
            await book.end_change(digest, seq, failure, now)
            if not failure:
                person, entry = await book.find(change.identity)
                if entry is not None:
                    await book.put_entries([_after(change, entry, person)], now)
        return failure

    async def _end(
        self, digest: str, state: PlanState, made: int, problems: Iterable[str]
    ) -> Applied:
        problems = tuple(problems)
        detail = "; ".join(problems)[:4000]
        async with self._store.writing(self._realm) as book:
            await book.set_plan(digest, state, ended_at=self._clock.now(), detail=detail)
        log.info("applied", plan=digest, state=state.value, made=made, problems=problems)
        return Applied(digest, state, made, problems)


def _active(entries: Mapping[Identity, Entry]) -> int:
    return sum(entry.state is State.ACTIVE for entry in entries.values())


def _blocked(entry: Entry, why: Denial) -> Entry:
    """An entry after its identity was denied; where the account is the site's, that is all."""
    return replace(
        entry,
        state=State.BLOCKED,
        applied=entry.applied if entry.owned else State.BLOCKED,
        reason=why.value,
        version=entry.version + 1,
    )


def _after(change: Change, entry: Entry, person: Person | None) -> Entry:
    """An entry after its change was made; who was denied meanwhile does not become active."""
    if change.kind == Kind.BLOCK:
        return replace(entry, applied=State.BLOCKED)
    denial = person.denial if person else Denial.ABSENT
    return replace(
        entry,
        state=State.BLOCKED if denial else State.ACTIVE,
        applied=State.ACTIVE,
        reason=denial.value,
        version=entry.version + 1,
    )

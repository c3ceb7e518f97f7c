"""Pull, plan, approve and apply against the real issuer and database."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from sqlalchemy import update

from account_importer.directory import SourceError, UnixUser
from account_importer.executor import RegistryTarget
from account_importer.importer import BY_RULE, BrakedError, Importer, NoSuchPlanError
from account_importer.rules import (
    AccountSettings,
    ApprovalSettings,
    BrakeSettings,
    MappingSettings,
)
from account_importer.store import PlanState
from account_importer.tables import plans
from headgate.identity import Identity
from testbed.issuer.core import Fault
from testbed.issuer.directory import User


async def registry(site: Any) -> dict[str, str]:
    """Account names and their states."""
    async with site.store().reading("r") as book:
        return {e.account: e.state.value for e in (await book.entries()).values()}


async def versions(site: Any) -> dict[str, int]:
    """Account names and their versions."""
    async with site.store().reading("r") as book:
        return {e.account: e.version for e in (await book.entries()).values()}


ALL = {"alice": "active", "bob": "active", "carol": "active"}


async def test_from_the_source_to_accounts(site: Any) -> None:
    """Eligible users get an account after approval; a second run finds nothing to do."""
    importer = site.importer()
    pull = await importer.pull()
    assert (pull.seen, pull.denied) == (4, 0)
    found = await importer.plan()
    assert [(c.kind, c.account, c.uid) for c in found.plan.changes] == [
        ("create", "alice", 20000),
        ("create", "bob", 20001),
        ("create", "carol", 20002),
    ]
    assert found.state is PlanState.PROPOSED
    assert await importer.apply() == []  # nobody approved
    assert site.machine.calls == []
    await importer.approve(found.plan.digest[:8], "ada")
    (result,) = await importer.apply()
    assert (result.state, result.made, result.problems) == (PlanState.APPLIED, 3, ())
    assert await registry(site) == ALL
    assert site.machine.calls == ["useradd alice", "useradd bob", "useradd carol"]
    assert await importer.apply() == []
    assert (await importer.plan()).plan.changes == ()


async def test_planning_again_gives_the_same_plan(site: Any) -> None:
    """Names and numbers are reserved: the hash does not move while nothing moves."""
    importer = site.importer()
    await importer.pull()
    first = await importer.plan()
    await importer.pull()
    assert (await site.importer().plan()).plan.digest == first.plan.digest


async def test_a_rule_approves_in_its_bounds_only(site: Any) -> None:
    """The rule's kinds, number and groups decide; beyond them a person does."""
    rule = ApprovalSettings(kinds=("create",), max_changes=3, groups_any=("hpc",))
    await site.importer().pull()
    for beyond in ({"kinds": ("block",)}, {"max_changes": 2}, {"groups_any": ("gpu",)}):
        found = await site.importer(approval=msgspec.structs.replace(rule, **beyond)).plan()
        assert (found.state, found.approved_by) == (PlanState.PROPOSED, ""), beyond
    importer = site.importer(approval=rule)
    found = await importer.plan()
    assert (found.state, found.approved_by) == (PlanState.APPROVED, BY_RULE)
    (result,) = await importer.apply()
    assert result.made == 3


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"active": False}, "inactive"),
        ({"end_time": datetime(2025, 12, 31, tzinfo=UTC)}, "expired"),
        ({"groups": ()}, "not_eligible"),
        (None, "absent"),
    ],
)
async def test_denying_is_immediate_and_changes_wait(
    site: Any, fields: dict[str, Any] | None, reason: str
) -> None:
    """A pull blocks at once, without approval; account and return wait for a plan."""
    await site.settle()
    bob = site.issuer.directory.user("bob")
    if fields is None:
        site.issuer.directory.delete("bob")
    else:
        site.issuer.directory.change("bob", **fields)
    importer = site.importer()
    assert (await importer.pull()).denied == 1
    assert await registry(site) == {**ALL, "bob": "blocked"}
    async with site.store().reading("r") as book:
        _, entry = await book.find(Identity(site.issuer.url, bob.id))
    assert (entry.reason, entry.version) == (reason, 2)
    assert site.machine.expired == set()
    assert [c.kind for c in (await importer.plan()).plan.changes] == ["block"]
    await site.settle()
    assert site.machine.expired == {"bob"}
    site.issuer.directory.put(bob)
    assert (await importer.pull()).denied == 0
    assert (await registry(site))["bob"] == "blocked"
    await site.settle()
    assert await registry(site) == ALL
    assert site.machine.expired == set()
    assert (await versions(site))["bob"] == 3
    assert site.machine.calls.count("useradd bob") == 1


async def test_blocking_twice_is_a_plan_of_its_own(site: Any) -> None:
    """An approval of the first block is none of the second: the version is in the hash."""
    await site.settle()
    digests = []
    for active in (False, True, False):
        site.issuer.directory.change("bob", active=active)
        await site.importer().pull()
        digests.append((await site.importer().plan()).plan.digest)
        await site.settle()
    assert len(set(digests)) == 3


async def test_an_empty_or_shrunken_source_changes_nothing(site: Any) -> None:
    """The brake alarms; an administrator's number lets it pass."""
    await site.settle()
    users = site.issuer.directory.users()
    site.issuer.directory.clear()
    with pytest.raises(BrakedError, match="empty"):
        await site.importer().pull()
    with pytest.raises(BrakedError):
        await site.importer().apply()
    assert await registry(site) == ALL
    for user in users[:1]:
        site.issuer.directory.put(user)
    tight = site.importer(brake=BrakeSettings(max_percent=10, floor=0))
    with pytest.raises(BrakedError, match="2 of 3"):
        await tight.pull()
    async with site.store().reading("r") as book:
        assert (await book.last_pull()).outcome == "braked"
    assert (await tight.pull(allow=2)).denied == 2
    assert await registry(site) == {**ALL, "bob": "blocked", "carol": "blocked"}


async def test_a_source_that_fails_changes_nothing(site: Any) -> None:
    """An error half-way is neither an empty nor a shorter source."""
    await site.settle()
    site.issuer.faults.append(Fault("/scim/Users", status=500, times=9))
    for verb in (site.importer().pull, site.importer().apply):
        with pytest.raises(SourceError):
            await verb()
    assert await registry(site) == ALL


async def test_a_row_that_slipped_between_pages_is_nobodys_absence(site: Any) -> None:
    """The list is consistent and lacks a user who is there: asked by id, nobody is blocked."""
    await site.settle()
    bob = site.issuer.directory.user("bob")

    def away() -> None:
        site.issuer.directory.delete("bob")

    def back() -> None:
        site.issuer.directory.put(bob)

    site.issuer.faults += [
        Fault("/scim/Users", status=0, action=away),
        Fault(f"/scim/Users/{bob.id}", status=0, action=back),
    ]
    pull = await site.importer().pull()
    assert pull.denied == 0
    assert await registry(site) == ALL


async def test_approval_binds_to_the_hash(site: Any) -> None:
    """A plan changed in the database is not approved, not applied, and nothing of it is made."""
    importer = site.importer()
    await importer.pull()
    found = await importer.plan()

    async def tamper() -> None:
        document = found.plan.canonical().decode().replace("20001", "20009")
        async with site.store().connection() as connection:
            await connection.execute(update(plans).values(document=document))

    with pytest.raises(NoSuchPlanError):
        await importer.approve("", "eve")
    with pytest.raises(NoSuchPlanError):
        await importer.approve("0" * 64, "eve")
    await importer.approve(found.plan.digest, "ada")
    await tamper()
    (result,) = await importer.apply()
    assert result.state is PlanState.REFUSED
    assert "changed after it was hashed" in result.problems[0]
    with pytest.raises(NoSuchPlanError, match="changed after"):
        await importer.approve(found.plan.digest, "ada")
    assert site.machine.calls == []


async def test_apply_stops_when_the_source_moved_after_approval(site: Any) -> None:
    """One approved user is gone: the whole plan stops before its first change."""
    importer = site.importer()
    await importer.pull()
    found = await importer.plan()
    await importer.approve(found.plan.digest, "ada")
    site.issuer.directory.change("carol", active=False)
    (result,) = await importer.apply()
    assert result.state is PlanState.STOPPED
    assert "create carol" in result.problems[0]
    assert site.machine.calls == []
    await site.settle()
    assert (await registry(site))["carol"] == "reserved"
    assert site.machine.calls == ["useradd alice", "useradd bob"]


async def test_apply_stops_when_the_target_moved_after_approval(site: Any) -> None:
    """Somebody made a local account of that name meanwhile: it is not touched."""
    importer = site.importer()
    await importer.pull()
    await importer.approve((await importer.plan()).plan.digest, "ada")
    local = UnixUser("bob", 1001, 1001, "", "/home/bob")
    site.machine.users["bob"] = local
    (result,) = await importer.apply()
    assert result.state is PlanState.STOPPED
    found = await importer.plan()
    assert [refusal.user_name for refusal in found.refusals] == ["bob"]
    assert [c.account for c in found.plan.changes] == ["alice", "carol"]
    await site.settle()
    assert site.machine.users["bob"] == local


async def test_newcomers_do_not_stop_an_approved_plan(site: Any) -> None:
    """A user who came after approval waits for the next plan; the approved one is carried out."""
    importer = site.importer()
    await importer.pull()
    await importer.approve((await importer.plan()).plan.digest, "ada")
    site.issuer.directory.put(User(username="aaron", groups=("hpc",)))
    (result,) = await importer.apply()
    assert (result.state, result.made) == (PlanState.APPLIED, 3)
    assert [c.account for c in (await importer.plan()).plan.changes] == ["aaron"]


async def test_the_policy_of_root_has_the_last_word(site: Any) -> None:
    """An approved plan beyond the policy is refused whole and says why."""
    site.policy = msgspec.structs.replace(site.policy, uid_last=20001)
    importer = site.importer()
    await importer.pull()
    digest = (await importer.plan()).plan.digest
    await importer.approve(digest, "ada")
    (result,) = await importer.apply()
    assert result.state is PlanState.REFUSED
    assert "uid 20002 is out of range" in result.problems[0]
    assert site.machine.calls == []
    assert (await importer.plan()).state is PlanState.REFUSED


async def test_one_failure_leaves_the_others_done_and_is_tried_again(site: Any) -> None:
    """A full disk for one user: the others are made; the next run makes the last one."""
    site.machine.broken.add("bob")
    importer = site.importer()
    await importer.pull()
    await importer.approve((await importer.plan()).plan.digest, "ada")
    (result,) = await importer.apply()
    assert (result.state, result.made) == (PlanState.APPLYING, 2)
    assert "no space left" in result.problems[0]
    assert await registry(site) == {**ALL, "bob": "reserved"}
    site.machine.broken.clear()
    (result,) = await importer.apply()
    assert (result.state, result.made) == (PlanState.APPLIED, 1)
    assert await registry(site) == ALL


async def test_who_left_and_came_back_under_another_id_gets_nothing_of_the_old(site: Any) -> None:
    """The same user name with a new subject is somebody else: refused, not adopted."""
    await site.settle()
    old = site.issuer.directory.user("bob")
    site.issuer.directory.delete("bob")
    site.issuer.directory.put(msgspec.structs.replace(old, sub="another"))
    await site.importer().pull()
    found = await site.importer().plan()
    assert [c.kind for c in found.plan.changes] == ["block"]
    assert [r.reason for r in found.refusals] == ["bob was given to somebody else"]


async def test_a_renamed_user_keeps_account_and_number(site: Any) -> None:
    """Account names are immutable once made; the identity is the subject."""
    await site.settle()
    bob = site.issuer.directory.user("bob")
    site.issuer.directory.delete("bob")
    site.issuer.directory.put(msgspec.structs.replace(bob, username="robert", sub=bob.id))
    assert (await site.importer().pull()).denied == 0
    assert (await site.importer().plan()).plan.changes == ()


async def test_mapping_mode_writes_the_registry_alone(site: Any) -> None:
    """Every identity leads to the one account; blocking needs no plan, coming back does."""
    mapping = MappingSettings(account="me", uid=1000, gid=1000, home="/home/me")
    settings = msgspec.structs.replace(
        site.settings,
        mode="mapping",
        mapping=mapping,
        approval=ApprovalSettings(kinds=("link", "unblock")),
    )
    importer = Importer(
        settings=settings,
        store=site.store(),
        source=site.source(),
        target=RegistryTarget(),
        clock=site.clock,
    )

    async def turn() -> list[tuple[str, str]]:
        await importer.plan()
        await importer.apply()
        async with site.store().reading("r") as book:
            entries = await book.entries()
        return sorted((e.account, e.state.value) for e in entries.values())

    await importer.pull()
    assert await turn() == [("me", "active")] * 3
    site.issuer.directory.change("bob", active=False)
    await importer.pull()
    assert (await importer.plan()).plan.changes == ()
    assert ("me", "blocked") in await turn()
    site.issuer.directory.change("bob", active=True)
    await importer.pull()
    assert await turn() == [("me", "active")] * 3
    assert site.machine.calls == []


async def test_a_name_reserved_by_the_site_after_approval_stops_the_plan(site: Any) -> None:
    """The settings are part of what is read again: a newly reserved name is not given."""
    importer = site.importer()
    await importer.pull()
    await importer.approve((await importer.plan()).plan.digest, "ada")
    importer = site.importer(accounts=AccountSettings(reserved=("bob",)))
    (result,) = await importer.apply()
    assert result.state is PlanState.STOPPED
    found = await importer.plan()
    assert [c.account for c in found.plan.changes] == ["alice", "carol"]
    assert [r.reason for r in found.refusals] == ["bob is reserved"]

"""Mapping mode: identities lead to accounts the site has already, by the table alone."""

import pwd
from datetime import UTC, datetime

from account_importer.directory import Denial, Facts, Person
from account_importer.mapping import link
from account_importer.plan import compute
from account_importer.rules import MappingSettings
from headgate.identity import Identity

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def person(sub: str) -> Person:
    """Somebody eligible."""
    return Person(Identity("i", sub), sub, frozenset({"hpc"}), None, Denial.NONE, NOW, NOW, NOW)


def look_up(name: str) -> pwd.struct_passwd:
    """A site with two users."""
    known = {"ada": 1001, "root": 0}
    if name not in known:
        raise KeyError(f"getpwnam(): name not found: {name!r}")
    return pwd.struct_passwd((name, "x", known[name], 100, "", f"/home/{name}", "/bin/sh"))


def test_everybody_shares_the_one_account_we_run_as() -> None:
    """The embedded site: every identity is linked to the fixed account, nothing is looked up."""
    mapping = MappingSettings(account="me", uid=1000, gid=1000, home="/home/me")
    made, refusals = link([person("1"), person("2")], {}, mapping, look_up)
    assert [(e.account, e.uid, e.owned) for e in made] == [("me", 1000, False)] * 2
    assert not refusals
    people = {p.identity: p for p in (person("1"), person("2"))}
    plan, _ = compute(people, {e.identity: e for e in made}, Facts(), "r")
    assert [c.kind for c in plan.changes] == ["link", "link"]


def test_a_subject_without_a_row_or_an_account_is_refused() -> None:
    """The table decides by subject; names in the token or the source are not looked at."""
    mapping = MappingSettings(users={"1": "ada", "2": "gone"})
    made, refusals = link([person("1"), person("2"), person("ada")], {}, mapping, look_up)
    assert [(e.account, e.uid, e.home) for e in made] == [("ada", 1001, "/home/ada")]
    assert len(refusals) == 2


def test_nobody_is_mapped_to_root() -> None:
    """A table that says so is refused."""
    made, refusals = link([person("1")], {}, MappingSettings(account="root"), look_up)
    assert (made, refusals[0].reason) == ([], "root is root")

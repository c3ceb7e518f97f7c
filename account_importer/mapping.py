"""Mapping mode: accounts exist already; the registry says whose identity leads to which."""

import pwd
from collections.abc import Callable, Iterable, Mapping

from account_importer.directory import Entry, Person, State
from account_importer.plan import Refusal, wanted
from account_importer.rules import MappingSettings
from headgate.identity import Identity

LookUp = Callable[[str], pwd.struct_passwd]
"""`pwd.getpwnam`: raises KeyError where there is no such account."""


def link(
    people: Iterable[Person],
    entries: Mapping[Identity, Entry],
    mapping: MappingSettings,
    look_up: LookUp,
) -> tuple[list[Entry], list[Refusal]]:
    """Entries for people who have none yet, by the settings' table and by nothing else.

    Root is mapped to by nothing at all.
    """
    made: list[Entry] = []
    refusals: list[Refusal] = []
    for person in wanted(people, entries):
        try:
            entry = _entry(person, mapping, look_up)
        except (KeyError, ValueError) as error:
            refusals.append(Refusal(person.identity, person.user_name, str(error.args[0])))
            continue
        if entries.get(person.identity) != entry:
            made.append(entry)
    return made, refusals


def _entry(person: Person, mapping: MappingSettings, look_up: LookUp) -> Entry:
    account = mapping.users.get(person.identity.sub, mapping.account)
    if not account:
        raise ValueError("no account is mapped to this subject")
    fixed = account == mapping.account
    uid = mapping.uid if fixed else None
    gid = mapping.gid if fixed else None
    home = mapping.home if fixed else ""
    shell = ""
    if uid is None or gid is None or not home:
        found = look_up(account)
        uid = found.pw_uid if uid is None else uid
        gid = found.pw_gid if gid is None else gid
        home, shell = home or found.pw_dir, found.pw_shell
    if uid == 0:
        raise ValueError(f"{account} is root")
    return Entry(
        identity=person.identity,
        account=account,
        uid=uid,
        gid=gid,
        home=home,
        shell=shell,
        owned=False,
        state=State.RESERVED,
    )

"""What is understood in the settings and can never work, for `check-config` to warn of."""

from collections.abc import Collection, Iterator

from token_translator.grants import Command, Profile
from token_translator.rules import Rule
from token_translator.settings import Settings
from token_translator.signer.ceilings import Ceilings


def in_vain(settings: Settings, ceilings: Ceilings | None) -> list[str]:
    """A sentence for each rule that gives nothing; `ceilings` None: they are not known here."""
    return [words for rule in settings.rules for words in _of(rule, settings, ceilings)]


def _of(rule: Rule, settings: Settings, ceilings: Ceilings | None) -> Iterator[str]:
    name = f"rule {rule.name!r}"
    wanted = settings.key_types if rule.key_types is None else rule.key_types
    if not wanted & settings.key_types:
        yield (
            f"{name} can never hold: of its key_types ({_list(wanted)}) none is in the general "
            f"key_types ({_list(settings.key_types)})"
        )
    if ceilings is None:
        return
    if not wanted & ceilings.key_types:
        allowed = _list(ceilings.key_types)
        yield f"{name}: the signer's ceilings allow none of its key_types, only {allowed}"
    if rule.lifetime > ceilings.max_lifetime:
        yield (
            f"{name}: lifetime {rule.lifetime} s is above the signer's ceiling of "
            f"{ceilings.max_lifetime} s: who gets more than that by it is refused"
        )
    if Profile.PERSON in rule.profiles:
        yield from _logins(name, rule, ceilings)


def _logins(name: str, rule: Rule, ceilings: Ceilings) -> Iterator[str]:
    if not ceilings.logins:
        yield f"{name}: the signer's ceilings allow no logins"
    more = set(rule.extensions) - ceilings.extensions
    if rule.command is Command.SHELL and more:
        yield (
            f"{name}: extensions {_list(more)} are above the signer's ceilings "
            f"({_list(ceilings.extensions)}): everybody of this rule is refused"
        )


def _list(words: Collection[str]) -> str:
    return ", ".join(sorted(words)) or "none"

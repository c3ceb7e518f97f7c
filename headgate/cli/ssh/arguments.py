"""What a person gives ssh(1) after the host: its own options first, then the remote command."""

from collections.abc import Sequence

_WITH_VALUE = frozenset("BbcDEeFIiJLlmOoPpQRSWw")
_SETTING = {"p": "port", "l": "user"}


def settings(arguments: Sequence[str]) -> frozenset[str]:
    """The settings of ssh_config(5), in small letters, that the options among them give.

    ssh reads options after the host, too, and stops at the first word that is none, or at `--`.
    """
    found, words = set[str](), iter(arguments)
    for word in words:
        if not word.startswith("-") or word in {"-", "--"}:
            break
        option, value = _value_of(word[1:])
        if option and not value:
            value = next(words, "")
        if option == "o":
            found.add(_name(value))
        elif option in _SETTING:
            found.add(_SETTING[option])
    return frozenset(found)


def _value_of(letters: str) -> tuple[str, str]:
    """The option of a word that takes a value, and the value if it is in the word: `-Cp22`."""
    for at, letter in enumerate(letters):
        if letter in _WITH_VALUE:
            return letter, letters[at + 1 :]
    return "", ""


def _name(setting: str) -> str:
    """The name in `Port=22`, `Port 22` and the like."""
    return setting.replace("=", " ").strip().partition(" ")[0].lower()

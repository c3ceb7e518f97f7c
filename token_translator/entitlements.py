"""Group memberships as AARC-G069 writes them, and when one held satisfies one wanted.

`urn:<NID>:<namespace…>:group:<group>[:<subgroup>…][:role=<role>][#<authority>]`. Source:
AARC-G069 (2022), which supersedes AARC-G002; RFC 8141 for the URN around it.
"""

import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

MAX_LENGTH = 2048
MEMBER = "member"
_URN = re.compile(r"[\x21-\x7e]+")  # the rest is percent-encoded in a URN
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_FIRST_GROUP = 3
"""`urn`, the NID and at least one word of namespace stand before `group`."""


class EntitlementError(ValueError):
    """A text that states no group membership; the message says why."""


@dataclass(frozen=True, slots=True)
class Membership:
    """Membership of one group: its path from the top, and a role in it.

    Everything is percent-decoded; `namespace` is in lower case, the rest as it was. The role
    `member` is the same as none. `authority` is empty where the URN names none.
    """

    namespace: str
    path: tuple[str, ...]
    role: str = ""
    authority: str = ""

    def satisfies(self, wanted: "Membership", *, subgroups: bool) -> bool:
        """Whether who holds this has what is wanted.

        Group, role and authority are compared as wholes; a wanted one without authority is not
        satisfied by one with. A role is nobody's without being held: plain membership is no role,
        and a role is no plain membership. With `subgroups`, plain membership of a group below
        counts; a role there does not.
        """
        if (self.namespace, self.authority) != (wanted.namespace, wanted.authority):
            return False
        if (self.path, self.role) == (wanted.path, wanted.role):
            return True
        below = self.path[: len(wanted.path)] == wanted.path
        return subgroups and below and not self.role and not wanted.role


def parse(text: str) -> Membership:
    """The membership that a URN states.

    Raises:
        EntitlementError: it is another kind of entitlement, or not well-formed.
    """
    if len(text) > MAX_LENGTH or not _URN.fullmatch(text) or "?" in text:
        raise EntitlementError("not a URN")
    name, _, authority = text.partition("#")
    words = name.split(":")
    if words[0].lower() != "urn" or "" in words or "group" not in words[_FIRST_GROUP:]:
        raise EntitlementError("not a group membership of AARC-G069")
    at = words.index("group", _FIRST_GROUP)
    path, role = words[at + 1 :], ""
    if path and path[-1].startswith("role="):
        role = _decoded(path.pop().removeprefix("role="))
    if not path or any(word.startswith("role=") for word in path):
        raise EntitlementError("not a group membership of AARC-G069")
    return Membership(
        namespace=":".join(words[:at]).lower(),
        # After splitting: an encoded colon is part of a group's name.
        path=tuple(_decoded(word) for word in path),
        role="" if role == MEMBER else role,
        authority=_decoded(authority) if "#" in text else "",
    )


def _decoded(word: str) -> str:
    if not word or _BAD_ESCAPE.search(word) or "#" in word:
        raise EntitlementError("not well-formed")
    try:
        decoded = unquote_to_bytes(word).decode()
    except UnicodeDecodeError as error:
        raise EntitlementError("not UTF-8") from error
    if not decoded.isprintable():
        raise EntitlementError("unprintable characters")
    return decoded

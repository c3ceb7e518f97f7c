"""A look at what a JWT says, unverified: to ask for a better one, to warn, to tell people apart."""

import base64
import binascii
import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec


class Person(msgspec.Struct, frozen=True):
    """Whose a token is: issuer and subject; of an opaque one, no issuer and the token's digest."""

    iss: str
    sub: str


def person(token: str, id_token: str = "") -> Person:
    """Whose the token is; `id_token` says it where the token itself is opaque."""
    for found in map(of, (token, id_token)):
        iss, sub = found.get("iss"), found.get("sub")
        if isinstance(iss, str) and isinstance(sub, str) and sub:
            return Person(iss, sub)
    return Person("", "sha256:" + hashlib.sha256(token.encode()).hexdigest())


def of(token: str) -> Mapping[str, Any]:
    """The claims of a JWT; empty if the token is opaque."""
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    except (IndexError, binascii.Error, msgspec.DecodeError, UnicodeError):
        return {}
    return claims if isinstance(claims, dict) else {}


def audiences(token: str) -> tuple[str, ...]:
    """The audiences of a JWT; empty if it names none, or is opaque."""
    audience = of(token).get("aud")
    if isinstance(audience, str):
        return (audience,)
    return tuple(str(a) for a in audience) if isinstance(audience, list) else ()

"""A look at what a JWT says, unverified: only to ask for a better one, or to warn a person."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import msgspec


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

"""Compact JWS (RFC 7515): listed algorithms only, and headers that cannot surprise."""

from collections.abc import Collection
from typing import Any

import msgspec
from joserfc import jwk, jws
from joserfc.errors import JoseError, UnsupportedAlgorithmError

MAX_HEADER = 8 * 1024
"""In base64 characters: certificate chains in headers are ignored, but they are there."""


class SignatureError(Exception):
    """Not a compact JWS, or not signed by that key with one of those algorithms."""


class _Registry(jws.JWSRegistry):
    """Unknown header parameters are ignored (RFC 7515, section 4); `crit` ones are not."""

    max_header_length = MAX_HEADER

    def __init__(self, algorithms: Collection[str]) -> None:
        super().__init__(algorithms=algorithms, strict_check_header=False)
        self._listed = frozenset(algorithms)

    def get_alg(self, name: str) -> Any:  # noqa: ANN401 - the library does not export its type
        # Without the library's warning about the name EdDSA (RFC 9864): issuers use it.
        if name not in self._listed:
            raise UnsupportedAlgorithmError(f"{name} is not listed")
        return self.algorithms[name]


def unverified(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and claims of a compact JWS as they are, only to find out whose key to try.

    Raises:
        SignatureError: it is no compact JWS of two JSON objects.
    """
    try:
        parsed = jws.extract_compact(token.encode("ascii"), registry=_Registry(()))
        claims = msgspec.json.decode(parsed.payload)
        header: object = parsed.headers()  # whatever JSON it was
    except (JoseError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise SignatureError("not a signed JWT") from error
    if not isinstance(header, dict) or not isinstance(claims, dict):
        raise SignatureError("not a signed JWT of two JSON objects")
    return header, claims


def verified(token: str, key: jwk.Key, *, algorithms: Collection[str]) -> dict[str, Any]:
    """The claims of a compact JWS that this key signed.

    Raises:
        SignatureError: it did not, or with an algorithm that is not listed or not the key's.
    """
    named = key.as_dict(private=False).get("alg")
    try:
        parsed = jws.deserialize_compact(token, key, registry=_Registry(algorithms))
        if named is not None and parsed.headers()["alg"] != named:
            raise SignatureError("the key is for another algorithm")
        claims = msgspec.json.decode(parsed.payload)
    except (JoseError, ValueError, TypeError) as error:
        raise SignatureError("the signature is not valid") from error
    if not isinstance(claims, dict):
        raise SignatureError("the claims are no JSON object")
    return claims


def sign(header: dict[str, Any], claims: dict[str, Any], key: jwk.Key) -> str:
    """A compact JWS of these claims by a private key; `header` names the algorithm."""
    registry = _Registry((header["alg"],))
    return jws.serialize_compact(header, msgspec.json.encode(claims), key, registry=registry)

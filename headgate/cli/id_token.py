"""What an issuer says of the person who has just logged in, checked before anything is kept."""

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from joserfc import jwk, jwt
from joserfc.errors import JoseError

from headgate.cli.oauth import Demand, IssuerClient, IssuerFailure

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
SKEW = timedelta(seconds=60)
_LATEST = 2**53
"""Seconds since the epoch that are still a moment."""


async def check(oauth: IssuerClient, token: str, *, nonce: str, demand: Demand) -> None:
    """Hold an ID token to OpenID Connect Core, section 3.1.3.7, and to what was demanded.

    Raises:
        IssuerFailure: it is missing, not the issuer's, not for us, or not of this login.
    """
    if not token:
        if "openid" in oauth.scopes:
            raise _wrong(oauth, "did not say who logged in")
        return
    _, document = await oauth.call("GET", (await oauth.endpoints()).keys)
    try:
        # KeySet refuses what is no key set at all with a KeyError.
        keys = jwk.KeySet.import_key_set({"keys": document["keys"]})
        claims = jwt.decode(token, keys, algorithms=list(ALGORITHMS)).claims
    except (JoseError, ValueError, TypeError, KeyError) as error:
        raise _wrong(oauth, "sent an ID token that it did not sign") from error
    fault = _fault(claims, oauth, nonce, demand, oauth.clock.now())
    if fault:
        raise _wrong(oauth, fault)


def _fault(
    claims: Mapping[str, Any], oauth: IssuerClient, nonce: str, demand: Demand, now: datetime
) -> str:
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    ours = oauth.client_id in audiences and claims.get("azp", oauth.client_id) == oauth.client_id
    seconds, skew = now.timestamp(), SKEW.total_seconds()
    age = seconds - _moment(claims, "auth_time")
    rules = (
        (claims.get("iss") == oauth.issuer, "sent another issuer's ID token"),
        (ours, "sent an ID token that is meant for another program"),
        (claims.get("nonce") == nonce, "sent an ID token of another login"),
        (_moment(claims, "exp") + skew > seconds, "sent an ID token that has expired"),
        (_moment(claims, "iat") - skew <= seconds, "sent an ID token of the future"),
        (
            demand.max_age is None or age <= demand.max_age + skew,
            "did not ask to sign in again, as the site wishes",
        ),
    )
    return next((words for kept, words in rules if not kept), "")


def _moment(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if not isinstance(value, int | float):
        return 0.0
    return float(value) if abs(value) < _LATEST else math.nan  # is neither before nor after


def _wrong(oauth: IssuerClient, what: str) -> IssuerFailure:
    return IssuerFailure(
        f"The issuer {oauth.issuer} {what}; nothing was kept.", error="invalid_id_token"
    )

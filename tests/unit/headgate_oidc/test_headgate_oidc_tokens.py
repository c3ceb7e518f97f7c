"""Attacks by way of the token itself: each is refused, and the refusal is a 401 with words."""

import base64
import hmac
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from joserfc import jwk

from headgate.identity import Identity
from headgate.oidc import TokenVerifier
from headgate.problems import Unauthenticated
from tests.unit.headgate_oidc.token_requests import AUDIENCE, refused


def encode(data: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@pytest.mark.parametrize("kid", ["rsa", "ec", "okp"])
async def test_a_good_token(verifier: TokenVerifier, issuer: Any, kid: str) -> None:
    """RSA, ECDSA and Ed25519 signatures of the issuer's keys are accepted."""
    principal = await verifier.verify(issuer.token(kid=kid, jti="j", client_id="c", scope="a b"))
    assert principal.identity == Identity(issuer.url, "alice")
    assert principal.audience == {AUDIENCE}
    assert (principal.token_id, principal.client_id) == ("j", "c")
    assert principal.scopes == {"a", "b"}


async def test_the_old_name_of_ed25519(verifier: TokenVerifier, issuer: Any) -> None:
    """EdDSA (RFC 8037), which issuers still write, is the same algorithm."""
    token = issuer.token(kid="okp", header={"alg": "EdDSA"})
    assert (await verifier.verify(token)).identity.sub == "alice"


@pytest.mark.parametrize("alg", ["none", "NoNe", "NONE", "nOnE", "", None, 1, [], "RS256 "])
@pytest.mark.parametrize("signature", ["", "AAAA"])
async def test_alg_none(verifier: TokenVerifier, issuer: Any, alg: Any, signature: str) -> None:
    """No spelling of no algorithm is accepted, with or without a signature."""
    header = encode(json.dumps({"alg": alg, "typ": "at+jwt", "kid": "rsa"}).encode())
    payload = encode(json.dumps(issuer.claims()).encode())
    await refused(verifier, f"{header}.{payload}.{signature}")


@pytest.mark.parametrize("alg", ["HS256", "HS384", "HS512"])
@pytest.mark.parametrize("form", ["pem", "jwk", "empty"])
async def test_the_public_key_as_a_secret(
    verifier: TokenVerifier, issuer: Any, alg: str, form: str
) -> None:
    """An HMAC under what everybody knows of the issuer's RSA key is no signature."""
    key = issuer.keys["rsa"]
    pem = key.public_key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    document = json.dumps(key.as_dict(private=False)).encode()
    secret = {"pem": pem, "jwk": document, "empty": b""}[form]
    header = {"alg": alg, "typ": "at+jwt", "kid": "rsa"}
    parts = (json.dumps(part).encode() for part in (header, issuer.claims()))
    start = ".".join(encode(part) for part in parts)
    digest = hmac.digest(secret, start.encode(), f"sha{alg[2:]}")
    token = f"{start}.{encode(digest)}"
    await refused(verifier, token, "algorithm")


async def test_an_algorithm_of_another_type(verifier: TokenVerifier, issuer: Any) -> None:
    """A key is used only with algorithms of its own type."""
    payload = json.dumps(issuer.claims()).encode()
    header = {"alg": "ES256", "typ": "at+jwt", "kid": "rsa"}
    await refused(verifier, issuer.sign(header, payload, issuer.keys["ec"]), "signature")
    header = {"alg": "RS256", "typ": "at+jwt", "kid": "ec"}
    await refused(verifier, issuer.sign(header, payload, issuer.keys["rsa"]), "signature")


async def test_an_algorithm_that_is_not_listed(make: Any, issuer: Any) -> None:
    """What the administrator did not list for this issuer is refused before any key is used."""
    await refused(make(algorithms=("ES256",)), issuer.token(kid="rsa"), "algorithm")


async def test_psychic_signatures(verifier: TokenVerifier, issuer: Any) -> None:
    """ECDSA with r = s = 0 is no signature (CVE-2022-21449)."""
    start = issuer.token(kid="ec").rsplit(".", 1)[0]
    for signature in (b"\0" * 64, b"", b"\0" * 63 + b"\1", b"\xff" * 64):
        await refused(verifier, f"{start}.{encode(signature)}", "signature")


async def test_a_changed_claim(verifier: TokenVerifier, issuer: Any) -> None:
    """The signature of one token does not fit another."""
    header, _, signature = issuer.token().split(".")
    payload = encode(json.dumps(issuer.claims(sub="root")).encode())
    await refused(verifier, f"{header}.{payload}.{signature}", "signature")


@pytest.mark.parametrize(
    "header",
    [{"crit": ["exp"]}, {"crit": ["b64"], "b64": False}, {"b64": False}, {"crit": []}],
)
async def test_critical_headers(
    verifier: TokenVerifier, issuer: Any, header: dict[str, Any]
) -> None:
    """Extensions that must be understood are not (RFC 7515, section 4.1.11; RFC 7797)."""
    await refused(verifier, issuer.token(header=header))


async def test_headers_that_name_keys_are_ignored(
    verifier: TokenVerifier, issuer: Any, silent: str
) -> None:
    """`jku`, `x5u`, `jwk` and `x5c` bring no key of the attacker's, and are not fetched."""
    mine = jwk.RSAKey.generate_key(2048, {"kid": "rsa"})
    names = {
        "jku": f"{silent}keys",
        "x5u": f"{silent}chain",
        "jwk": mine.as_dict(private=False),
        "x5c": [encode(b"certificate" * 200)],
        "kid": "rsa",
    }
    payload = json.dumps(issuer.claims()).encode()
    for name, value in names.items():
        header = {"alg": "RS256", "typ": "at+jwt", "kid": "rsa", name: value}
        await refused(verifier, issuer.sign(header, payload, mine), "signature")
    header = {"alg": "RS256", "kid": "rsa", "jku": names["jku"], "unknown": {"a": 1}}
    good = issuer.sign(header, payload, issuer.keys["rsa"])
    assert (await verifier.verify(good)).identity.sub == "alice"


@pytest.mark.parametrize(
    "kid", ["../../etc/passwd", "' OR 1=1 --", "k" * 5000, "\0", "RSA", "", 1, ["rsa"], {"a": 1}]
)
async def test_names_of_keys(verifier: TokenVerifier, issuer: Any, kid: Any) -> None:
    """A key's name is looked up as it is, and nothing else is made of it."""
    await refused(verifier, issuer.token(header={"kid": kid}))


@pytest.mark.parametrize("typ", ["JWT", "jwt", "at+jwt", "application/at+jwt", "AT+JWT"])
async def test_types_of_access_tokens(verifier: TokenVerifier, issuer: Any, typ: str) -> None:
    """RFC 9068's type and the plain one of older issuers are accepted."""
    assert await verifier.verify(issuer.token(header={"typ": typ}))


@pytest.mark.parametrize(
    "typ", ["headgate-peer+jwt", "logout+jwt", "dpop+jwt", "secevent+jwt", "JWE", "", 1]
)
async def test_types_of_other_tokens(verifier: TokenVerifier, issuer: Any, typ: Any) -> None:
    """A token made for another purpose is no access token."""
    await refused(verifier, issuer.token(header={"typ": typ}))


@pytest.mark.parametrize("claim", ["nonce", "at_hash", "c_hash", "s_hash"])
async def test_an_id_token(verifier: TokenVerifier, issuer: Any, claim: str) -> None:
    """An ID token says who logged in, not who may do what."""
    await refused(verifier, issuer.token(**{claim: "x"}), "ID token")


@pytest.mark.parametrize("typ", ["at+jwt", "AT+JWT", "application/at+jwt"])
async def test_a_required_type(make: Any, issuer: Any, typ: str) -> None:
    """Where the administrator requires RFC 9068's type, it is accepted in each spelling."""
    assert await make(required_type="at+jwt").verify(issuer.token(header={"typ": typ}))


@pytest.mark.parametrize("typ", ["JWT", "jwt", "application/jwt", "", None, "at+jwt ", 1])
async def test_a_required_type_that_is_missing(make: Any, issuer: Any, typ: Any) -> None:
    """There a plain JWT, which an ID token may be, is refused."""
    verifier = make(required_type="at+jwt")
    await refused(verifier, issuer.token(header={"typ": typ}), "not an access token")
    payload = json.dumps(issuer.claims()).encode()
    without = issuer.sign({"alg": "RS256", "kid": "rsa"}, payload, issuer.keys["rsa"])
    await refused(verifier, without, "not an access token")


@pytest.mark.parametrize(
    "claims", [{"typ": "ID"}, {"typ": "Refresh"}, {"typ": "Offline"}, {"token_use": "id"}]
)
async def test_types_in_the_claims(
    verifier: TokenVerifier, issuer: Any, claims: dict[str, Any]
) -> None:
    """An issuer that writes the purpose into the claims is believed too."""
    await refused(verifier, issuer.token(**claims), "not an access token")
    assert await verifier.verify(issuer.token(typ="Bearer", token_use="access"))


async def test_a_token_that_is_bound_to_a_key(verifier: TokenVerifier, issuer: Any) -> None:
    """A token that needs a proof (RFC 8705, RFC 9449) is worth nothing without one."""
    await refused(verifier, issuer.token(cnf={"jkt": "x"}), "bound to a key")


@pytest.mark.parametrize(
    "token",
    [
        "", "a", "a.b", "a.b.c", "a.b.c.d.e", "..", "e30.e30.", "é.é.é", "\0",
        f"{encode(b'[]')}.{encode(b'{}')}.AAAA",
        f"{encode(json.dumps(['alg']).encode())}.{encode(b'{}')}.AAAA",
        f"{encode(json.dumps('alg').encode())}.{encode(b'{}')}.AAAA",
        f"{encode(b'null')}.{encode(b'{}')}.AAAA",
        f"{encode(b'{}')}.{encode(b'[1]')}.AAAA",
        encode(b'{"alg":"RS256"}') + "." + encode(b"[" * 100000) + ".AAAA",
        encode(b'{"alg":"RS256"}') + "." + encode(b"[" * 5000) + ".AAAA",
        encode(b'{"alg":' + b"[" * 3000) + "." + encode(b"{}") + ".AAAA",
        encode(b'{"alg":"RSA-OAEP","enc":"A128GCM"}') + ".AAAA.AAAA.AAAA.AAAA",
        encode(b"\xff\xfe") + "." + encode(b"\xff") + ".AAAA",
        "A" * 100_000,
    ],
)  # fmt: skip
async def test_things_that_are_no_tokens(verifier: TokenVerifier, token: str) -> None:
    """Encrypted, nested, cut, overlong, deep or plain nonsense: a 401, never an error of ours."""
    await refused(verifier, token)


async def test_a_token_within_a_token(verifier: TokenVerifier, issuer: Any) -> None:
    """A nested JWT is not unpacked."""
    header = {"alg": "RS256", "kid": "rsa", "cty": "JWT"}
    await refused(verifier, issuer.sign(header, issuer.token().encode(), issuer.keys["rsa"]))


async def test_claims_that_come_twice(verifier: TokenVerifier, issuer: Any) -> None:
    """The claims that are checked are those that count: the last one of a name wins everywhere."""
    payload = json.dumps(issuer.claims()).encode()[:-1]
    for more in (b', "sub": "bob"}', b', "iss": "https://stranger/"}', b', "exp": 1}'):
        header = {"alg": "RS256", "kid": "rsa"}
        token = issuer.sign(header, payload + more, issuer.keys["rsa"])
        try:
            assert (await verifier.verify(token)).identity.sub == "bob"
        except Unauthenticated:
            assert b"sub" not in more


async def test_no_problem_repeats_the_token(verifier: TokenVerifier, issuer: Any) -> None:
    """What the caller is told holds no part of what was sent."""
    token = issuer.token(aud="https://secret-service.example/", sub="the-secret-subject")
    with pytest.raises(Unauthenticated) as caught:
        await verifier.verify(token)
    said = repr(caught.value.document())
    assert not [part for part in (*token.split("."), "secret") if part in said]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(header=st.binary(max_size=80), payload=st.binary(max_size=80))
def test_no_bytes_are_a_surprise(header: bytes, payload: bytes) -> None:
    """Whatever is signed, unpacking it ends in objects or in one kind of exception."""
    from headgate.signatures import SignatureError, unverified  # noqa: PLC0415 - only here

    try:
        unverified(f"{encode(header)}.{encode(payload)}.AAAA")
    except SignatureError:
        return

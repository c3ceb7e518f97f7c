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

from headgate.clock import HeldClock
from headgate.identity import Identity
from headgate.oidc import TokenVerifier
from headgate.problems import Problem, Unauthenticated

AUDIENCE = "https://service.site.example/"


def encode(data: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


async def refused(verifier: TokenVerifier, token: str, words: str = "", **more: Any) -> None:
    """Expect a refusal that says these words."""
    with pytest.raises(Unauthenticated, match=words or None):
        await verifier.verify(token, **more)


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


@pytest.mark.parametrize("claim", ["nonce", "at_hash"])
async def test_an_id_token(verifier: TokenVerifier, issuer: Any, claim: str) -> None:
    """An ID token says who logged in, not who may do what."""
    await refused(verifier, issuer.token(**{claim: "x"}), "ID token")


@pytest.mark.parametrize(
    "aud",
    [None, "", [], "https://other.example/", ["https://other.example/"], 1, {"a": AUDIENCE},
     AUDIENCE.rstrip("/"), AUDIENCE.upper(), f"{AUDIENCE} x", [[AUDIENCE]]],
)  # fmt: skip
async def test_audiences_of_others(verifier: TokenVerifier, issuer: Any, aud: Any) -> None:
    """A token for another service, or for none, is refused and told what to ask for."""
    await refused(verifier, issuer.token(aud=aud), "ask for the audience")


async def test_one_audience_of_several(verifier: TokenVerifier, issuer: Any) -> None:
    """A token for us among others is ours too."""
    assert await verifier.verify(issuer.token(aud=["https://other.example/", AUDIENCE]))


async def test_foreign_audiences_of_listed_clients(make: Any, issuer: Any) -> None:
    """A foreign or absent audience counts only together with a client listed for that issuer."""
    verifier = make(client_audiences={"orchestrator": ("https://other.example/", "")})
    for aud in ("https://other.example/", None):
        assert await verifier.verify(issuer.token(aud=aud, client_id="orchestrator"))
        await refused(verifier, issuer.token(aud=aud, client_id="somebody"))
        await refused(verifier, issuer.token(aud=aud))
    await refused(verifier, issuer.token(aud="https://third.example/", client_id="orchestrator"))


@pytest.mark.parametrize(
    "change",
    [
        lambda url: url.rstrip("/"),
        lambda url: url + "/",
        lambda url: url.replace("http://", "HTTP://"),
        lambda url: url.replace("http://", "http://user@"),
        lambda url: url + "#",
        lambda url: url + "?a=b",
        lambda url: url.replace("127.0.0.1", "127.0.0.\u0661"),
        lambda _: None,
        lambda _: 1,
        lambda url: [url],
    ],
    ids=[
        "no-slash",
        "two-slashes",
        "scheme",
        "user",
        "fragment",
        "query",
        "digit",
        "none",
        "number",
        "list",
    ],
)
async def test_issuers_that_look_alike(verifier: TokenVerifier, issuer: Any, change: Any) -> None:
    """The issuer is compared byte for byte, and nothing is asked of one that is not ours."""
    await refused(verifier, issuer.token(iss=change(issuer.url)), "not trusted")
    assert issuer.asked == []


async def test_nothing_is_fetched_for_a_stranger(
    verifier: TokenVerifier, issuer: Any, silent: str
) -> None:
    """An issuer that is not configured gets no request at all, whatever the token says."""
    await refused(verifier, issuer.token(iss=silent), "not trusted")
    await refused(verifier, issuer.token(iss=silent, header={"jku": f"{silent}jwk"}), "not trusted")


@pytest.mark.parametrize("sub", [None, "", 1, "s" * 10_000, ["alice"], True])
async def test_subjects(verifier: TokenVerifier, issuer: Any, sub: Any) -> None:
    """A subject is a text of one to 255 characters (OpenID Connect Core, section 2)."""
    await refused(verifier, issuer.token(sub=sub), "subject")


@pytest.mark.parametrize(
    "exp",
    [None, "soon", -1, 0, 1.5, True, [], 2**63, 1e300, -1e300, 253402300800, -(2**70), "99999"],
)  # fmt: skip
async def test_expiries(verifier: TokenVerifier, issuer: Any, exp: Any) -> None:
    """An expiry that is absent, past, no number or no moment is refused, never an error of ours."""
    await refused(verifier, issuer.token(exp=exp))


async def test_the_last_moment_there_is(verifier: TokenVerifier, issuer: Any) -> None:
    """The end of the calendar does not overflow."""
    assert await verifier.verify(issuer.token(exp=253402300799))


@pytest.mark.parametrize(("name", "offset", "good"), [
    ("exp", -59, True), ("exp", -60, False), ("exp", -61, False),
    ("nbf", 60, True), ("nbf", 61, False), ("iat", 60, True), ("iat", 61, False),
    ("nbf", -10**9, True),
])  # fmt: skip
async def test_clocks_may_differ_by_a_minute(
    verifier: TokenVerifier, issuer: Any, clock: HeldClock, name: str, offset: int, *, good: bool
) -> None:
    """Sixty seconds of skew, to the second."""
    token = issuer.token(**{name: int(clock.now().timestamp()) + offset})
    if good:
        assert await verifier.verify(token)
    else:
        await refused(verifier, token)


async def test_a_fractional_expiry(verifier: TokenVerifier, issuer: Any, clock: HeldClock) -> None:
    """NumericDate may be a fraction (RFC 7519, section 2): some issuers send one."""
    assert await verifier.verify(issuer.token(exp=clock.now().timestamp() + 1.5))


async def test_required_scopes(make: Any, issuer: Any) -> None:
    """A scope the administrator requires is named when it is missing; a part of it is not it."""
    verifier = make(required_scopes=("headgate.ssh",))
    assert await verifier.verify(issuer.token(scope="openid headgate.ssh"))
    with pytest.raises(Problem, match="scope headgate"):
        await verifier.verify(issuer.token(scope="headgate.ssh.x"))
    with pytest.raises(Problem, match="scope headgate"):
        await verifier.verify(issuer.token())


async def test_groups(verifier: TokenVerifier, issuer: Any) -> None:
    """WLCG's leading slash is dropped, IAM's groups are as they are; no text is split."""
    token = issuer.token(groups=["a", "b/c"], **{"wlcg.groups": ["/d", "/e/f"]})
    assert (await verifier.verify(token)).groups == {"a", "b/c", "d", "e/f"}


@pytest.mark.parametrize("groups", [1, {"a": 1}, [1, None, ["x"]], None, ""])
async def test_groups_that_are_none(verifier: TokenVerifier, issuer: Any, groups: Any) -> None:
    """What is no list of texts gives no group."""
    assert (await verifier.verify(issuer.token(groups=groups))).groups == frozenset()


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

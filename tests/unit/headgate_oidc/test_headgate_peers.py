"""Peer credentials: short, for one service, used once."""

import base64
import json
import secrets
from typing import Any

import pytest
from joserfc import jwk, jws

from headgate.clock import HeldClock
from headgate.peers import HEADER, Peer, PeerSettings, PeerSigner, PeerVerifier
from headgate.problems import Forbidden, Unauthenticated
from headgate.settings import SettingsError

US = "https://tokens.site.example/"


@pytest.fixture
def key() -> jwk.OKPKey:
    """The gateway's key."""
    return jwk.OKPKey.generate_key("Ed25519")


def settings(key: jwk.OKPKey, instance: str = "gateway", *verbs: str) -> PeerSettings:
    """A peer as the callee lists it."""
    public = {name: str(value) for name, value in key.as_dict(private=False).items()}
    return PeerSettings(instance=instance, keys=(public,), verbs=frozenset(verbs))


@pytest.fixture
def verifier(key: jwk.OKPKey, clock: HeldClock) -> PeerVerifier:
    """A callee that lists the gateway."""
    return PeerVerifier(peers=[settings(key, "gateway", "seals")], audience=US, clock=clock)


@pytest.fixture
def signer(key: jwk.OKPKey, clock: HeldClock) -> PeerSigner:
    """The gateway."""
    return PeerSigner(instance="gateway", key=key, clock=clock)


def forge(key: Any, clock: HeldClock, header: Any = None, **changes: Any) -> str:
    """A credential with changes, signed by a key."""
    now = int(clock.now().timestamp())
    claims = {
        "iss": "gateway",
        "sub": "gateway",
        "aud": US,
        "iat": now,
        "exp": now + 60,
        "jti": secrets.token_hex(8),
        **changes,
    }
    usual = {"alg": "EdDSA", "typ": "headgate-peer+jwt", "kid": key.thumbprint()}
    kept = {name: value for name, value in claims.items() if value is not None}
    parts = ({**usual, **(header or {})}, kept)
    start = ".".join(encode(json.dumps(part).encode()) for part in parts)
    model = jws.JWSRegistry.algorithms[parts[0]["alg"]]
    return f"{start}.{encode(model.sign(start.encode(), key))}"


def encode(data: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def test_a_call_between_services(signer: PeerSigner, verifier: PeerVerifier) -> None:
    """Who calls and what it may do, from one header."""
    peer = verifier.verify(signer.headers(US)[HEADER])
    assert peer == Peer("gateway", frozenset({"seals"}), "")
    peer.require("seals")
    with pytest.raises(Forbidden) as caught:
        peer.require("certificates.session")
    assert caught.value.stable_code == "peer_verb"


def test_used_once(signer: PeerSigner, verifier: PeerVerifier, clock: HeldClock) -> None:
    """A credential that was seen is refused for as long as it could be valid."""
    header = signer.headers(US)[HEADER]
    verifier.verify(header)
    for seconds in (0, 30, 60, 29, 1, 1, 1000):
        clock.advance(seconds)
        with pytest.raises(Unauthenticated):
            verifier.verify(header)


def test_what_was_used_is_forgotten_in_time(
    signer: PeerSigner, verifier: PeerVerifier, clock: HeldClock
) -> None:
    """Memory holds two minutes' worth of credentials."""
    for _ in range(50):
        verifier.verify(signer.headers(US)[HEADER])
        clock.advance(10)
    assert len(verifier._seen) <= 13


def test_for_another_service(signer: PeerSigner, verifier: PeerVerifier) -> None:
    """A credential one service was handed is of no use before another."""
    for url in ("https://accounts.site.example/", US.rstrip("/"), ""):
        with pytest.raises(Unauthenticated):
            verifier.verify(signer.headers(url)[HEADER])


@pytest.mark.parametrize("seconds", [121, 3600, -61, -3600])
def test_stale_or_early(
    signer: PeerSigner, verifier: PeerVerifier, clock: HeldClock, seconds: int
) -> None:
    """A minute of life and a minute of skew, and not a second more."""
    header = signer.headers(US)[HEADER]
    clock.advance(seconds)
    with pytest.raises(Unauthenticated):
        verifier.verify(header)


@pytest.mark.parametrize("seconds", [119, -60])
def test_clocks_may_differ_by_a_minute(
    signer: PeerSigner, verifier: PeerVerifier, clock: HeldClock, seconds: int
) -> None:
    """Within the skew it is accepted."""
    header = signer.headers(US)[HEADER]
    clock.advance(seconds)
    assert verifier.verify(header)


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "accounts"},
        {"sub": "accounts"},
        {"iss": "accounts", "sub": "accounts"},
        {"aud": [US]},
        {"exp": 2**62},
        {"exp": 10**30},
        {"iat": -(10**30)},
        {"iat": 0},
        {"exp": None},
        {"iat": None},
        {"jti": None},
        {"aud": None},
        {"exp": "soon"},
        {"header": {"typ": "JWT"}},
        {"header": {"typ": "at+jwt"}},
        {"header": {"typ": None}},
        {"header": {"crit": ["x"]}},
        {"header": {"kid": "unknown"}},
        {"header": {"kid": None}},
        {"header": {"kid": ["x"]}},
    ],
)
def test_forgeries_with_the_right_key(
    verifier: PeerVerifier, key: jwk.OKPKey, clock: HeldClock, changes: dict[str, Any]
) -> None:
    """A listed service cannot stretch, rename or redirect its own credential."""
    with pytest.raises(Unauthenticated):
        verifier.verify(forge(key, clock, **changes))


def test_forgeries_with_another_key(verifier: PeerVerifier, key: Any, clock: HeldClock) -> None:
    """Another key is refused under its own name and under the listed one."""
    other = jwk.OKPKey.generate_key("Ed25519")
    with pytest.raises(Unauthenticated):
        verifier.verify(forge(other, clock))
    with pytest.raises(Unauthenticated):
        verifier.verify(forge(other, clock, header={"kid": key.thumbprint()}))


def test_one_service_is_not_another(key: jwk.OKPKey, clock: HeldClock) -> None:
    """A key is good for the name it is listed with."""
    other = jwk.OKPKey.generate_key("Ed25519")
    peers = [settings(key, "gateway", "seals"), settings(other, "probe")]
    verifier = PeerVerifier(peers=peers, audience=US, clock=clock)
    with pytest.raises(Unauthenticated):
        verifier.verify(forge(other, clock))
    assert verifier.verify(forge(other, clock, iss="probe", sub="probe")).verbs == frozenset()


def test_hmac_with_the_public_key(verifier: PeerVerifier, key: Any, clock: HeldClock) -> None:
    """Only EdDSA is a signature here; neither HMAC nor none is."""
    document = json.dumps(key.as_dict(private=False))
    secret = jwk.OctKey.import_key(document)
    token = forge(secret, clock, header={"alg": "HS256", "kid": key.thumbprint()})
    with pytest.raises(Unauthenticated):
        verifier.verify(token)
    start = forge(key, clock, header={"alg": "EdDSA"}).rsplit(".", 1)[0]
    with pytest.raises(Unauthenticated):
        verifier.verify(f"{start}.")


@pytest.mark.parametrize("header", ["", "x", "a.b.c", "é", "..", "e30.e30.AAAA", "A" * 9000])
def test_things_that_are_no_credentials(verifier: PeerVerifier, header: str) -> None:
    """Nonsense is a 401, never an error of ours."""
    with pytest.raises(Unauthenticated):
        verifier.verify(header)


def test_two_keys_during_a_rotation(key: jwk.OKPKey, clock: HeldClock) -> None:
    """A service has several keys while one replaces the other."""
    new = jwk.OKPKey.generate_key("Ed25519")
    both = PeerSettings(
        instance="gateway",
        keys=settings(key).keys + settings(new).keys,
        verbs=frozenset(),
    )
    verifier = PeerVerifier(peers=[both], audience=US, clock=clock)
    for one in (key, new):
        assert verifier.verify(forge(one, clock)).instance == "gateway"


def test_key_files(tmp_path: Any, clock: HeldClock) -> None:
    """A key file that is open to everybody, or holds no such key, is refused."""
    path = tmp_path / "peer.pem"
    path.write_text("not a key")
    path.chmod(0o600)
    with pytest.raises(SettingsError, match="not an Ed25519"):
        PeerSigner.from_file(instance="x", path=path, clock=clock)
    path.chmod(0o644)
    with pytest.raises(SettingsError, match="readable by everybody"):
        PeerSigner.from_file(instance="x", path=path, clock=clock)

"""Which public keys are accepted, and why the others are not."""

import base64
import contextlib
from itertools import count
from math import gcd, prod
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from token_translator.keys import ALL_TYPES, KeyRefusedError, accept


def line_of(key: Any) -> str:
    """A public key as OpenSSH writes it."""
    line: bytes = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return line.decode()


def string(data: bytes) -> bytes:
    """RFC 4251's string."""
    return len(data).to_bytes(4, "big") + data


def line(kind: str, *parts: bytes) -> str:
    """A key line with these fields."""
    blob = b"".join(string(part) for part in (kind.encode(), *parts))
    return f"{kind} {base64.b64encode(blob).decode()}"


def mpint(value: int) -> bytes:
    """A positive mpint's content."""
    return value.to_bytes(value.bit_length() // 8 + 1, "big")


# The same in every process: it names tests.
GOOD = line_of(ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
COPRIME = next(n for n in count(1 << 3071) if gcd(n, prod(range(2, 200))) == 1)
RSA_2048 = line_of(rsa.generate_private_key(65537, 2048))
PRIMES = [n for n in range(2, 702) if all(n % low for low in range(2, n))]


def factor(start: int, power: int) -> int:
    """A number of 1536 bits that is made as the factors of CVE-2017-15361 are."""
    product = prod(PRIMES)
    return ((1 << 1536) // product - start) * product + pow(65537, power, product)


ROCA = factor(1, 12345) * factor(9, 54321)
POINT = (
    ec.generate_private_key(ec.SECP256R1())
    .public_key()
    .public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
)


@pytest.mark.parametrize(
    "key",
    [
        ed25519.Ed25519PrivateKey.generate(),
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP384R1()),
        ec.generate_private_key(ec.SECP521R1()),
        rsa.generate_private_key(65537, 3072),
    ],
)
def test_accepted_types(key: Any) -> None:
    """Ed25519, ECDSA on the three curves, and RSA from 3072 bits, with and without a comment."""
    text = line_of(key)
    assert accept(text).kind == text.split()[0]
    assert accept(f"  {text} me@laptop, at home\n").blob == accept(text).blob


def test_security_keys_only_where_allowed() -> None:
    """Keys on tokens are refused by default, and accepted where the site lists them."""
    text = line("sk-ssh-ed25519@openssh.com", b"k" * 32, b"ssh:")
    with pytest.raises(KeyRefusedError, match="security tokens"):
        accept(text)
    assert accept(text, types=ALL_TYPES).kind == "sk-ssh-ed25519@openssh.com"
    other = line("sk-ecdsa-sha2-nistp256@openssh.com", b"nistp256", POINT, b"ssh:laptop")
    assert accept(other, types=ALL_TYPES).blob
    with pytest.raises(KeyRefusedError, match="application"):
        accept(line("sk-ssh-ed25519@openssh.com", b"k" * 32, b"web:"), types=ALL_TYPES)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not an OpenSSH public key"),
        ("ssh-ed25519", "not an OpenSSH public key"),
        ("-----BEGIN RSA PRIVATE KEY-----", "private key"),
        (RSA_2048, "2048 bits"),
        ("ssh-dss AAAAB3NzaC1kc3M=", "DSA"),
        (line("ecdsa-sha2-nistp224", b"nistp224", b"\4" + b"x" * 56), "not accepted"),
        (line("ecdsa-sha2-nistp256", b"nistp384", POINT), "one curve"),
        (line("ecdsa-sha2-nistp256", b"nistp256", POINT[:-1] + b"\0"), "not a point"),
        (line("ecdsa-sha2-nistp256", b"nistp256", b"\0"), "uncompressed"),
        (line("ssh-ed25519", b"x" * 31), "32 bytes"),
        (line("ssh-ed25519", b"x" * 32, b"more"), "behind the key"),
        (line("ssh-rsa", mpint(65537), b"\0" + mpint(1 << 3071)), "not well-formed"),
        (line("ssh-rsa", mpint(65537), b"\xff" + b"x" * 400), "not well-formed"),
        (line("ssh-rsa", mpint(65537), mpint((1 << 16385) + 1)), "at most"),
        (line("ssh-rsa", mpint(65537), mpint((1 << 3071) + 1)), "divisible"),
        (line("ssh-rsa", mpint(65537), mpint((1 << 3071) + 2)), "divisible"),
        (line("ssh-rsa", mpint(65537), mpint(ROCA)), "CVE-2017-15361"),
        (line("ssh-rsa", mpint(2), mpint(COPRIME)), "not those of an RSA key"),
        (line("ssh-ed25519-cert-v01@openssh.com", b"x"), "certificate"),
        (f'from="*" {GOOD}', "options"),
        (f"restrict,pty {GOOD}", "options"),
        (f"{GOOD}\n{GOOD}", "one line"),
        (f"{GOOD}\x00", "one line"),
        ("ssh-ed25519 !!!!", "base64"),
        ("ssh-ed25519 AAAA", "cut short"),
        (GOOD.replace("ssh-ed25519", "ecdsa-sha2-nistp256", 1), "another inside"),
        (f"ssh-ed25519 {'A' * 1_000_000}", "longer"),
        ("x509v3-sign-rsa AAAA", "does not begin with a key type"),
    ],
)
def test_refused_with_the_reason(text: str, words: str) -> None:
    """Each kind of unusable key has its own sentence."""
    with pytest.raises(KeyRefusedError, match=words):
        accept(text, types=ALL_TYPES)


def test_reserved_keys() -> None:
    """The authority's own key is refused whatever its comment."""
    key = accept(GOOD)
    with pytest.raises(KeyRefusedError, match="authority's own"):
        accept(f"{GOOD} another comment", reserved={key.blob})


@given(st.binary(max_size=200), st.sampled_from(ALL_TYPES))
def test_no_bytes_are_a_surprise(data: bytes, kind: str) -> None:
    """Whatever comes, it is a key or a reason, never another exception."""
    blob = string(kind.encode()) + data
    with contextlib.suppress(KeyRefusedError):
        assert accept(f"{kind} {base64.b64encode(blob).decode()}", types=ALL_TYPES).blob == blob


@given(st.text(max_size=300))
def test_no_text_is_a_surprise(text: str) -> None:
    """Whatever text comes, the answer is a reason."""
    with pytest.raises(KeyRefusedError):
        accept(text)

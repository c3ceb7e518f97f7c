"""An authority key in a hardware token, reached by PKCS #11: it never leaves the token.

python-pkcs11 is an extra of its own and is imported by this module alone, late.
"""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import pkcs11
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pkcs11.exceptions import (
    PinExpired,
    PinIncorrect,
    PinInvalid,
    PinLenRange,
    PinLocked,
    PKCS11Error,
)

from headgate.settings import SettingsError
from token_translator.signer import signatures
from token_translator.signer.authority import AuthorityError
from token_translator.signer.files import read_private

SECONDS = 10.0
ED25519_BYTES = 32

T = TypeVar("T")


class Token:
    """One token, opened once: PKCS #11 logs a whole process in, and a session is one thread's."""

    def __init__(self, module: Path, label: str, pin_file: Path) -> None:
        self._module = module
        self._label = label
        self._pin_file = pin_file
        self._session: pkcs11.Session | None = None
        self._pin_refused = False
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pkcs11")

    async def authority(self, label: str) -> "TokenAuthority":
        """The key pair with a label.

        Raises:
            SettingsError: the token, the PIN or the key is not as the settings say.
        """
        try:
            public = await self._run(partial(self._public, label))
            return TokenAuthority(self, label, public)
        except (AuthorityError, signatures.SignatureError) as error:
            raise SettingsError(f"{self._module}: {self._label}: {label}: {error}") from error

    async def sign(self, label: str, data: bytes, mechanism: pkcs11.Mechanism) -> bytes:
        """The token's own signature with a labelled key; raises `AuthorityError`."""
        return await self._run(partial(self._sign, label, data, mechanism))

    async def close(self) -> None:
        """Log out."""
        with contextlib.suppress(AuthorityError):  # what is away is logged out
            await self._run(self._forget)
        self._thread.shutdown(wait=False)

    async def _run(self, action: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(SECONDS):
                return await loop.run_in_executor(self._thread, action)
        except TimeoutError as error:
            raise AuthorityError(f"the token did not answer within {SECONDS:g} s") from error
        except PKCS11Error as error:
            raise AuthorityError(f"{type(error).__name__} {error}".strip()) from error

    def _open(self) -> pkcs11.Session:
        if self._pin_refused:
            # Tokens lock themselves after a few wrong ones: it is tried once.
            raise AuthorityError("the token refused its PIN; correct it and start again")
        if self._session is None:
            token = pkcs11.lib(str(self._module)).get_token(token_label=self._label)
            pin = read_private(self._pin_file).decode().strip()
            try:
                self._session = token.open(user_pin=pin)
            except (PinIncorrect, PinInvalid, PinLenRange, PinExpired, PinLocked):
                self._pin_refused = True
                raise
        return self._session

    def _forget(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            session.close()

    def _public(self, label: str) -> signatures.PublicKey:
        key = self._open().get_key(object_class=pkcs11.ObjectClass.PUBLIC_KEY, label=label)
        match key.key_type:
            case pkcs11.KeyType.RSA:
                numbers = (key[pkcs11.Attribute.PUBLIC_EXPONENT], key[pkcs11.Attribute.MODULUS])
                exponent, modulus = (int.from_bytes(number, "big") for number in numbers)
                return rsa.RSAPublicNumbers(exponent, modulus).public_key()
            case pkcs11.KeyType.EC_EDWARDS:
                # A DER octet string around the 32 bytes (PKCS #11 v3.1, section 6.3.5).
                return Ed25519PublicKey.from_public_bytes(
                    key[pkcs11.Attribute.EC_POINT][-ED25519_BYTES:]
                )
            case pkcs11.KeyType.EC:
                return _on_curve(key[pkcs11.Attribute.EC_PARAMS], key[pkcs11.Attribute.EC_POINT])
            case other:
                raise signatures.SignatureError(f"a key of type {other}")

    def _sign(self, label: str, data: bytes, mechanism: pkcs11.Mechanism) -> bytes:
        try:
            return self._signed(label, data, mechanism)
        except PKCS11Error:
            # The token may have been taken out, or its session have ended: once more, anew.
            self._forget()
            return self._signed(label, data, mechanism)

    def _signed(self, label: str, data: bytes, mechanism: pkcs11.Mechanism) -> bytes:
        key = self._open().get_key(object_class=pkcs11.ObjectClass.PRIVATE_KEY, label=label)
        if not isinstance(key, pkcs11.SignMixin):
            raise AuthorityError(f"{label}: the token does not sign with it")
        signature: bytes = key.sign(data, mechanism=mechanism)
        return signature


class TokenAuthority:
    """A key pair of a token; each signature is checked before it is used."""

    def __init__(self, token: Token, label: str, public: signatures.PublicKey) -> None:
        self._token = token
        self._public = public
        self.blob = signatures.public_blob(public)
        self.comment = label

    async def sign(self, data: bytes) -> bytes:
        """An SSH signature blob over `data`; raises `AuthorityError`."""
        signature = await self._sign(data)
        try:
            signatures.verify(self._public, data, signature)
        except signatures.SignatureError as error:
            raise AuthorityError(f"the token's signature: {error}") from error
        return signature

    async def close(self) -> None:
        """Nothing: the token is closed by who opened it."""

    async def _sign(self, data: bytes) -> bytes:
        ask = partial(self._token.sign, self.comment)
        if isinstance(self._public, Ed25519PublicKey):
            return signatures.ed25519_signature(await ask(data, pkcs11.Mechanism.EDDSA))
        if isinstance(self._public, rsa.RSAPublicKey):
            return signatures.rsa_signature(await ask(data, pkcs11.Mechanism.SHA512_RSA_PKCS))
        digest = hashes.Hash(signatures.digest_for(self._public))
        digest.update(data)
        raw = await ask(digest.finalize(), pkcs11.Mechanism.ECDSA)
        half = len(raw) // 2
        numbers = (int.from_bytes(raw[:half], "big"), int.from_bytes(raw[half:], "big"))
        return signatures.ecdsa_signature(signatures.key_type(self.blob), *numbers)


def _on_curve(parameters: bytes, point: bytes) -> signatures.PublicKey:
    """An ECDSA key from its curve's OID and its point, both in DER (PKCS #11 v3.1, 6.3.3)."""
    for oid, curve in _CURVES.items():
        if parameters == oid:
            head = 3 if point[1] & 0x80 else 2  # an octet string of more than 127 bytes
            return ec.EllipticCurvePublicKey.from_encoded_point(curve, point[head:])
    raise signatures.SignatureError("an ECDSA key on a curve that OpenSSH does not use")


_CURVES = {
    bytes.fromhex("06082a8648ce3d030107"): ec.SECP256R1(),
    bytes.fromhex("06052b81040022"): ec.SECP384R1(),
    bytes.fromhex("06052b81040023"): ec.SECP521R1(),
}

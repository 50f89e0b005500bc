"""Master keys: what secrets at rest are sealed with, AES-256-GCM.

The one rule: a sealed value names the key it needs, by its fingerprint, and opens at its own place alone: the store's key is
authenticated with it. The first master key seals; all of them open, so a new one is put in front and the old one kept until
`holdfast secrets rotate` is done.
"""

import base64
import binascii
import hashlib
from pathlib import Path
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from holdfast.vocabulary.errors import CorruptError, InvalidError, UnavailableError
from holdfast.vocabulary.random import Random

_KEY_BYTES: Final = 32
_ID_BYTES: Final = 4
_NONCE_BYTES: Final = 12


class _Sealed(msgspec.Struct, frozen=True):
    """A sealed value as JSON, which is what stores keep: the key's fingerprint; nonce, ciphertext and tag in base64."""

    sealed: str
    data: bytes


class MissingMasterKeyError(UnavailableError):
    """A sealed value whose master key this process does not have. Nothing is lost: give it the key."""


class MasterKeys:
    """Keys of 32 bytes; the first one seals."""

    def __init__(self, keys: tuple[bytes, ...]) -> None:
        self._ciphers = {_fingerprint(key): AESGCM(key) for key in keys}
        self.current = _fingerprint(keys[0])

    def __repr__(self) -> str:
        return f"MasterKeys({', '.join(self._ciphers)})"

    def seal(self, place: str, value: bytes, random: Random) -> bytes:
        """The value, sealed for its place in the store."""
        nonce = bytes.fromhex(random.token() + random.token())[:_NONCE_BYTES]
        data = nonce + self._ciphers[self.current].encrypt(nonce, value, place.encode())
        return msgspec.json.encode(_Sealed(sealed=self.current, data=data))

    def open(self, place: str, value: bytes) -> bytes:
        """The value; what is not sealed, as it is. `MissingMasterKeyError`; `CorruptError`: it was changed, or moved."""
        sealed = _decoded(value)
        if sealed is None:
            return value
        cipher = self._ciphers.get(sealed.sealed)
        if cipher is None:
            raise missing_key(place, sealed.sealed)
        try:
            return cipher.decrypt(sealed.data[:_NONCE_BYTES], sealed.data[_NONCE_BYTES:], place.encode())
        except (InvalidTag, ValueError):
            raise CorruptError(place, "its seal is broken") from None


def sealed_with(value: bytes) -> str:
    """The fingerprint of the key that a stored value is sealed with; empty: it is in plain text."""
    sealed = _decoded(value)
    return "" if sealed is None else sealed.sealed


def _decoded(value: bytes) -> _Sealed | None:
    if b'"sealed"' not in value:
        return None
    try:
        return msgspec.json.decode(value, type=_Sealed)
    except msgspec.MsgspecError:
        return None


def missing_key(place: str, key: str) -> MissingMasterKeyError:
    """The error of a value whose key is not here."""
    reason = f"sealed with master key {key}, which this node does not have: give --master-key-file"
    return MissingMasterKeyError(place, reason)


def new_key_text() -> str:
    """A new key, as a line of a key file."""
    return base64.b64encode(AESGCM.generate_key(8 * _KEY_BYTES)).decode()


def parse_master_keys(what: str, text: str) -> MasterKeys:
    """Keys in base64, one per line or separated by commas; the first one seals. Errors show none of them."""
    words = [word for line in text.splitlines() if not line.lstrip().startswith("#") for word in line.split(",")]
    keys = []
    for word in filter(None, (word.strip() for word in words)):
        try:
            key = base64.b64decode(word, validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != _KEY_BYTES:
            raise InvalidError(what, "…", f"{_KEY_BYTES} random bytes in base64, one key per line")
        keys.append(key)
    if not keys:
        raise InvalidError(what, "", "at least one key")
    return MasterKeys(tuple(keys))


def read_master_keys(path: Path) -> MasterKeys:
    """The keys of a file. Blocks. `InvalidError`: it is missing, unreadable, or open to others."""
    what = f"master key file {path}"
    try:
        mode, text = path.stat().st_mode, path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidError("master key file", str(path), f"a readable file ({error})") from None
    if mode & 0o077:
        raise InvalidError("master key file", str(path), "readable by its owner alone: chmod 600")
    return parse_master_keys(what, text)


def _fingerprint(key: bytes) -> str:
    return hashlib.sha256(b"holdfast master key " + key).digest()[:_ID_BYTES].hex()

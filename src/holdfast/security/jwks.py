"""JSON Web Key Sets (RFC 7517): an issuer's public keys, and which of them a token's signature is checked with.

The one rule: a key has one family of algorithms, by its type, and counts for no other. Symmetric keys are none of an issuer's: they
are left out, as are keys that are too short, for encryption, or of an unknown type.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from jwt import PyJWTError
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from holdfast.vocabulary.errors import InvalidError

JWKS_BYTES_MAX: Final = 1024 * 1024
_KEYS_MAX: Final = 1_000
_RSA_BITS_MIN: Final = 2_048
_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
# What is public of a key: a set that has private members by mistake gives us none of them.
_PUBLIC: Final = ("kty", "n", "e", "crv", "x", "y")

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey | ed448.Ed448PublicKey


@dataclass(frozen=True, slots=True)
class IssuerKey:
    """A public key, its id, and the algorithms it counts for."""

    id: str | None
    key: PublicKey
    algorithms: frozenset[str]


class KeySet:
    """The keys of an issuer."""

    def __init__(self, keys: Iterable[IssuerKey] = ()) -> None:
        self._keys = tuple(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, key_id: str | None, algorithm: str) -> IssuerKey | None:
        """The key of a token. One without a key id needs a set in which there is no choice."""
        found = [each for each in self._keys if algorithm in each.algorithms and key_id in (None, each.id)]
        return found[0] if found and (key_id is not None or len(found) == 1) else None


def parse_jwks(data: bytes) -> KeySet:
    """The keys of a set. `InvalidError`: it is none, or has no key that tokens could be checked with."""
    try:
        listed = json.loads(data)["keys"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise InvalidError("JWKS", f"{len(data)} bytes", 'JSON: {"keys": […]}') from None
    if not isinstance(listed, list) or len(listed) > _KEYS_MAX:
        raise InvalidError("JWKS", f"{len(data)} bytes", f"a list of at most {_KEYS_MAX} keys")
    keys = [key for each in listed if isinstance(each, dict) and (key := _key(each)) is not None]
    if not keys:
        raise InvalidError("JWKS", f"{len(listed)} keys", f"an RSA key of {_RSA_BITS_MIN} bits, an EC or an OKP key")
    return KeySet(keys)


def _key(given: Mapping[str, Any]) -> IssuerKey | None:
    if given.get("use", "sig") != "sig":
        return None
    public = {name: given[name] for name in _PUBLIC if name in given}
    try:
        key, algorithms = _public_key(public)
    except (PyJWTError, ValueError, TypeError, KeyError):
        return None
    named, key_id = given.get("alg"), given.get("kid")
    if named is not None:
        algorithms &= {named} if isinstance(named, str) else set()
    return IssuerKey(key_id if isinstance(key_id, str) else None, key, algorithms) if algorithms else None


def _public_key(public: Mapping[str, Any]) -> tuple[PublicKey, frozenset[str]]:
    """`ValueError`: none that counts."""
    kind = public.get("kty")
    if kind == "RSA":
        key: Any = RSAAlgorithm.from_jwk(dict(public))
        if key.key_size < _RSA_BITS_MIN:
            raise ValueError(key.key_size)
        return key, _RSA
    if kind == "EC":
        key = ECAlgorithm.from_jwk(dict(public))
        return key, frozenset({_CURVES[key.curve.name]})
    if kind == "OKP":
        key = OKPAlgorithm.from_jwk(dict(public))
        return key, frozenset({"EdDSA"})
    raise ValueError(kind)

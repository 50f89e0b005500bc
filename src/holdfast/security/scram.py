"""SCRAM (RFC 5802, RFC 7677): credentials that are no passwords, and the server's side of an exchange.

The one rule: a nonce is drawn for each exchange and used once, and secrets are compared in constant time. Pure: the nonce is an
argument, an exchange is a value that each message turns into the next.

As Kafka's brokers do it: passwords are UTF-8 without SASLprep, channel binding and delegation tokens are refused. An unknown user
gets a challenge like everybody else (`decoy`), so that names cannot be tried out.
"""

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from holdfast.vocabulary.errors import HoldfastError, InvalidError
from holdfast.vocabulary.settings import check_between

ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384
ITERATIONS_DEFAULT: Final = 8_192
_SALT_BYTES: Final = 16


class ScramMechanism(StrEnum):
    """Mechanisms by their SASL names."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"

    @property
    def digest(self) -> str:
        """The hash function, as `hashlib` calls it."""
        return "sha256" if self is ScramMechanism.SHA_256 else "sha512"

    @property
    def key_bytes(self) -> int:
        """The size of its keys."""
        return hashlib.new(self.digest).digest_size


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What is stored of a password: enough to check it, not enough to log in with."""

    mechanism: ScramMechanism
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class ScramError(HoldfastError):
    """A message that ends the exchange: malformed, or a proof that is wrong."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class WrongProofError(ScramError):
    """A proof of another password: an attempt that counts."""

    def __init__(self) -> None:
        super().__init__("wrong user or password")


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """The slow part: hundreds of microseconds to milliseconds. Releases the GIL."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)


def credential_of(mechanism: ScramMechanism, password: str, *, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a password."""
    if not password:
        raise InvalidError("password", "", "not empty")
    return credential_of_salted(
        mechanism, salted_password(mechanism, password, salt, iterations), salt=salt, iterations=iterations
    )


def credential_of_salted(mechanism: ScramMechanism, salted: bytes, *, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a password that was salted elsewhere: Kafka's admin clients send no passwords."""
    check_between("iterations", iterations, ITERATIONS_MIN, ITERATIONS_MAX)
    if not salt or len(salt) > 256:
        raise InvalidError("salt", f"{len(salt)} bytes", "1 to 256 bytes")
    if len(salted) != mechanism.key_bytes:
        raise InvalidError("salted password", f"{len(salted)} bytes", f"{mechanism.key_bytes} bytes for {mechanism}")
    client_key = _hmac(mechanism, salted, b"Client Key")
    return ScramCredential(
        mechanism, salt, _hash(mechanism, client_key), _hmac(mechanism, salted, b"Server Key"), iterations
    )


def is_password(credential: ScramCredential, password: str) -> bool:
    """Whether it is the password of the credential, for mechanisms that send it (PLAIN). Slow."""
    mechanism = credential.mechanism
    salted = salted_password(mechanism, password, credential.salt, credential.iterations)
    stored_key = _hash(mechanism, _hmac(mechanism, salted, b"Client Key"))
    return hmac.compare_digest(stored_key, credential.stored_key)


def spend_refusal(credential: ScramCredential, password: str) -> None:
    """The work that is left of what every refusal takes: its time does not say whose credential, or that there was none. Slow."""
    for mechanism in ScramMechanism:
        done = credential.iterations if mechanism is credential.mechanism else 0
        salted_password(mechanism, password, credential.salt, max(1, ITERATIONS_MAX - done))


def decoy(mechanism: ScramMechanism, user: str, secret: bytes) -> ScramCredential:
    """A credential nobody has the password of: the same for a user each time, and no different from a real one."""

    def part(name: bytes) -> bytes:
        return _hmac(mechanism, secret, name + user.encode(errors="replace"))

    return ScramCredential(
        mechanism, part(b"salt:")[:_SALT_BYTES], part(b"stored:"), part(b"server:"), ITERATIONS_DEFAULT
    )


# ── the exchange ──

_SASL_NAME: Final = r"(?:[^,=\x00]|=2C|=3D)+"
_CLIENT_FIRST: Final = re.compile(
    rf"(?P<gs2>(?P<binding>[ny]|p=[^,]*),(?:a=(?P<authzid>{_SASL_NAME}))?,)"
    rf"(?P<bare>(?P<mandatory>m=[^,]*,)?n=(?P<user>{_SASL_NAME}),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?P<extensions>(?:,[a-zA-Z]+=[^,]+)*))"
)
_CLIENT_FINAL: Final = re.compile(
    r"(?P<without_proof>c=(?P<binding>[^,]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[a-zA-Z]+=[^,]+)*),p=(?P<proof>[^,]+)"
)
_DELEGATION: Final = ",tokenauth=true"


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """The first message of a client."""

    user: str
    nonce: str
    bare: str
    gs2: str


def read_client_first(data: bytes) -> ClientFirst:
    """Who wants to log in. `ScramError`."""
    found = _CLIENT_FIRST.fullmatch(_text(data))
    if found is None or found["mandatory"]:
        raise ScramError("malformed first message")
    if found["binding"].startswith("p"):
        raise ScramError("channel binding is not supported")
    user = _name(found["user"])
    if found["authzid"] and _name(found["authzid"]) != user:
        raise ScramError("acting for another user is not supported")
    if _DELEGATION in found["extensions"].lower():
        raise ScramError("delegation tokens are not supported")
    return ClientFirst(user, found["nonce"], found["bare"], found["gs2"])


@dataclass(frozen=True, slots=True)
class ScramChallenge:
    """A server's first message, and what its answer is checked against."""

    credential: ScramCredential
    client: ClientFirst
    nonce: str

    @property
    def message(self) -> bytes:
        """What the client gets."""
        salt = base64.b64encode(self.credential.salt).decode()
        return f"r={self.nonce},s={salt},i={self.credential.iterations}".encode()

    def verify(self, data: bytes) -> bytes:
        """The server's final message, if the client has the password. `ScramError`."""
        found = _CLIENT_FINAL.fullmatch(_text(data))
        if found is None:
            raise ScramError("malformed final message")
        credential = self.credential
        mechanism = credential.mechanism
        proof, binding = _decoded(found["proof"]), _decoded(found["binding"])
        if binding != self.client.gs2.encode() or len(proof) != mechanism.key_bytes:
            raise ScramError("malformed final message")
        if not hmac.compare_digest(found["nonce"], self.nonce):
            raise ScramError("the nonce is not that of this exchange")
        signed = b",".join((self.client.bare.encode(), self.message, found["without_proof"].encode()))
        signature = _hmac(mechanism, credential.stored_key, signed)
        client_key = bytes(left ^ right for left, right in zip(proof, signature, strict=True))
        if not hmac.compare_digest(_hash(mechanism, client_key), credential.stored_key):
            raise WrongProofError
        return b"v=" + base64.b64encode(_hmac(mechanism, credential.server_key, signed))


def challenge(credential: ScramCredential, client: ClientFirst, *, nonce: str) -> ScramChallenge:
    """Answer a client's first message. `nonce`: drawn for this exchange."""
    return ScramChallenge(credential, client, client.nonce + nonce)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ScramError("malformed message: not UTF-8") from None


def _name(text: str) -> str:
    return text.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramError("malformed final message") from None


def _hmac(mechanism: ScramMechanism, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, mechanism.digest)


def _hash(mechanism: ScramMechanism, data: bytes) -> bytes:
    return hashlib.new(mechanism.digest, data).digest()

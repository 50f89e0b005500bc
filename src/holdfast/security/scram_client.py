"""The client's side of SCRAM: what a node says to another one. Pure: the nonce is an argument.

The one rule: the server proves itself as well. An answer without its signature ends the exchange.
"""

import base64
import hashlib
import hmac
from typing import Final

from holdfast.security.scram import ScramError, ScramMechanism, salted_password

_ITERATIONS_MAX: Final = 1_000_000  # a server must not keep us busy for ever


class ScramExchange:
    """One login: `first`, then `final` with the server's challenge, then `verify` with its last message."""

    def __init__(self, mechanism: ScramMechanism, user: str, password: str, *, nonce: str) -> None:
        self._mechanism, self._password, self._nonce = mechanism, password, nonce
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}"
        self._signature = b""

    def first(self) -> bytes:
        """The first message."""
        return f"n,,{self._bare}".encode()

    def final(self, challenge: bytes) -> bytes:
        """The proof. `ScramError`. Slow."""
        fields = _fields(challenge)
        try:
            nonce, salt, iterations = fields["r"], base64.b64decode(fields["s"], validate=True), int(fields["i"])
        except (KeyError, ValueError):
            raise ScramError("malformed challenge") from None
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce) or not 0 < iterations <= _ITERATIONS_MAX:
            raise ScramError("the challenge is not for this exchange")
        digest = self._mechanism.digest
        salted = salted_password(self._mechanism, self._password, salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", digest)
        unproved = f"c=biws,r={nonce}"
        signed = b",".join((self._bare.encode(), challenge, unproved.encode()))
        stored_key = hashlib.new(digest, client_key).digest()
        signature = hmac.digest(stored_key, signed, digest)
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
        proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
        return f"{unproved},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, last: bytes) -> None:
        """Raise `ScramError` unless the server knows the password, too."""
        given = _fields(last).get("v", "")
        if not hmac.compare_digest(given.encode(), base64.b64encode(self._signature)):
            raise ScramError("the server has not proven itself")


def _fields(message: bytes) -> dict[str, str]:
    parts = message.decode(errors="replace").split(",")
    return {name: value for name, equals, value in (part.partition("=") for part in parts) if equals}

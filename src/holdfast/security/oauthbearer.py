"""SASL OAUTHBEARER (RFC 7628): the client's one message, and what a token says once it has been verified.

The one rule: nothing here trusts a token. `bearer_tokens` verifies it; this is the form it arrives in.
"""

import re
from dataclasses import dataclass
from typing import Final, Protocol

from holdfast.vocabulary.errors import HoldfastError

OAUTHBEARER: Final = "OAUTHBEARER"

_MESSAGE: Final = re.compile(
    rb"[ny],(?:a=(?P<authzid>[^,\x01]+))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x20-\x7e\t\r\n]*\x01)*)\x01"
)
_BEARER: Final = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] +(?P<token>[-_.A-Za-z0-9]+)")


class TokenError(HoldfastError):
    """A token that does not count, and why. The text holds nothing of the token's."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """Who a token is about, and from when on it no longer counts, by the wall clock."""

    name: str
    expires_at_ms: int


class TokenVerifier(Protocol):
    """Says who a token is about."""

    async def verify(self, token: str) -> VerifiedToken:
        """`TokenError`: it does not count."""
        ...


@dataclass(frozen=True, slots=True)
class BearerMessage:
    """A client's message. `authzid`: whom it wants to act for; empty: whom the token is about."""

    token: str
    authzid: str


def read_bearer_message(data: bytes) -> BearerMessage:
    """The token of a client. `TokenError`. Extensions (KIP-342) are accepted and not used."""
    found = _MESSAGE.fullmatch(data)
    if found is None:
        raise TokenError("malformed OAUTHBEARER message")
    pairs = [each.partition(b"=")[::2] for each in found["pairs"].split(b"\x01") if each]
    given = [value for name, value in pairs if name == b"auth"]
    bearer = _BEARER.fullmatch(given[0]) if len(given) == 1 else None
    if bearer is None:
        raise TokenError("malformed OAUTHBEARER message: it has no bearer token")
    try:
        return BearerMessage(bearer["token"].decode(), (found["authzid"] or b"").decode())
    except UnicodeDecodeError:
        raise TokenError("malformed OAUTHBEARER message: not UTF-8") from None

"""Bearer tokens (JWT, RFC 7519): whether one counts, and whom it is about.

The one rule: what a token says of itself chooses nothing but a key. The algorithm has to be one that the operator allows and that
the key is for; `none` and HMAC are never among them. Time is an argument: `verified` is pure.
"""

import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import jwt

from holdfast.security.jwks import KeySet
from holdfast.security.jwks_cache import JwksCache, read_jwks
from holdfast.security.oauth_settings import ANY, OAuthSettings
from holdfast.security.oauthbearer import TokenError, VerifiedToken
from holdfast.security.principals import EVERYBODY, check_user_name
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import background_tasks

# Claims are checked below, by the clock of the caller.
_SIGNATURE_ALONE: Final[Any] = {
    "verify_signature": True,
    "require": [],
    **dict.fromkeys(("verify_exp", "verify_nbf", "verify_iat", "verify_aud", "verify_iss"), False),
    **dict.fromkeys(("verify_sub", "verify_jti"), False),
}
_NOTHING: Final[Any] = {**_SIGNATURE_ALONE, "verify_signature": False}
_TIME_MAX_S: Final = 1 << 40


class UnknownSigningKeyError(TokenError):
    """The key that signed the token is not known: perhaps it is new."""


def verified(token: str, keys: KeySet, settings: OAuthSettings, now_ms: int) -> VerifiedToken:
    """Whom a token is about. `TokenError`: it does not count."""
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise TokenError("the token is no JWT") from None
    if "crit" in header:
        raise TokenError("the token needs extensions that are not supported")
    claims = _unsecured(token, header) if settings.unsecured else _signed(token, header, keys, settings)
    expires_at_ms = _check_times(claims, settings, now_ms)
    _check_origin(claims, settings)
    return VerifiedToken(_name(claims, settings.principal_claim), expires_at_ms)


def _signed(token: str, header: Mapping[str, Any], keys: KeySet, settings: OAuthSettings) -> Mapping[str, Any]:
    algorithm, key_id = header.get("alg"), header.get("kid")
    if algorithm not in settings.allowed_algorithms:
        raise TokenError("the token's algorithm is not allowed")
    found = keys.find(key_id, algorithm)
    if found is None:
        raise UnknownSigningKeyError("the token's key is not known")
    try:
        claims: Mapping[str, Any] = jwt.decode(token, found.key, algorithms=[algorithm], options=_SIGNATURE_ALONE)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise TokenError("the token's signature is wrong") from None
    return claims


def _unsecured(token: str, header: Mapping[str, Any]) -> Mapping[str, Any]:
    if header.get("alg") != "none" or not token.endswith("."):
        raise TokenError("the token is signed, and this listener is for tests without signatures (oauth.unsecured)")
    try:
        claims: Mapping[str, Any] = jwt.decode(token, options=_NOTHING)
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise TokenError("the token is no JWT") from None
    return claims


def _check_times(claims: Mapping[str, Any], settings: OAuthSettings, now_ms: int) -> int:
    """When the token expires: at most the skew ago."""
    expires_ms = _time_ms(claims, "exp")
    if expires_ms is None:
        raise TokenError("the token never expires")
    if now_ms >= expires_ms + settings.skew_ms:
        raise TokenError("the token has expired")
    for name in ("nbf", "iat"):
        from_ms = _time_ms(claims, name)
        if from_ms is not None and now_ms < from_ms - settings.skew_ms:
            raise TokenError("the token does not count yet")
    return expires_ms if now_ms < expires_ms else expires_ms + settings.skew_ms


def _time_ms(claims: Mapping[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TokenError(f"the token's {name} is no time")
    if abs(value) > _TIME_MAX_S:
        raise TokenError(f"the token's {name} is no time")
    return int(value * 1_000)


def _check_origin(claims: Mapping[str, Any], settings: OAuthSettings) -> None:
    if settings.issuer not in ("", ANY, claims.get("iss")):
        raise TokenError("the token is of another issuer")
    named = claims.get("aud")
    audiences = [named] if isinstance(named, str) else named if isinstance(named, list) else []
    if settings.audiences and not any(isinstance(each, str) and each in settings.audiences for each in audiences):
        raise TokenError("the token is for another audience")


def _name(claims: Mapping[str, Any], claim: str) -> str:
    name = claims.get(claim)
    if not isinstance(name, str) or name == EVERYBODY.name:
        raise TokenError(f"the token has no name of a user as its {claim}")
    try:
        check_user_name(claim, name)
    except InvalidError:
        raise TokenError(f"the token has no name of a user as its {claim}") from None
    return name


class BearerTokens:
    """Verifies tokens with the keys of a cache."""

    def __init__(self, cache: JwksCache, settings: OAuthSettings, clock: Clock) -> None:
        self.cache, self._settings, self._clock = cache, settings, clock

    async def verify(self, token: str) -> VerifiedToken:
        """Whom a token is about. `TokenError`."""
        try:
            return self._verified(token)
        except UnknownSigningKeyError:
            if not await self.cache.refreshed():
                raise
        return self._verified(token)

    def _verified(self, token: str) -> VerifiedToken:
        return verified(token, self.cache.keys, self._settings, self._clock.now_ms())


@asynccontextmanager
async def verifying_tokens(settings: OAuthSettings, *, clock: Clock, random: Random) -> AsyncIterator[BearerTokens]:
    """Verify tokens for the body. The first keys may still be on their way: whoever needs one waits for them."""
    cache = JwksCache(
        partial(read_jwks, settings.jwks, settings.jwks_ca),
        clock=clock,
        random=random,
        refresh_ms=settings.refresh_ms,
        refresh_min_ms=settings.refresh_min_ms,
    )
    async with background_tasks(*(() if settings.unsecured else (cache.run(),))):
        yield BearerTokens(cache, settings, clock)

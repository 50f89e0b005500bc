"""Keys of an issuer that adds some, is away, or is asked for keys that never were."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.support.oauth import AUDIENCE, ISSUER, Issuer, ec_key
from tests.support.waiting import async_until

from holdfast.security.bearer_tokens import BearerTokens, UnknownSigningKeyError, verifying_tokens
from holdfast.security.jwks_cache import JwksCache, read_jwks
from holdfast.security.oauth_settings import OAuthSettings
from holdfast.vocabulary.clock import FakeClock, RealClock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import SeededRandom
from holdfast.vocabulary.tasks import background_tasks

MIN_MS, REFRESH_MS = 10_000, 3_600_000


class Keys:
    """What is fetched, and how often."""

    def __init__(self) -> None:
        self.issuer = Issuer()
        self.reads = 0
        self.away = False

    def read(self) -> bytes:
        self.reads += 1
        if self.away:
            raise UnavailableError("JWKS", "away")
        return json.dumps(self.issuer.jwks()).encode()


def cache_of(keys: Keys, clock: FakeClock) -> JwksCache:
    random = SeededRandom(1)
    return JwksCache(keys.read, clock=clock, random=random, refresh_ms=REFRESH_MS, refresh_min_ms=MIN_MS)


async def test_a_new_key_is_fetched_when_a_token_names_it_and_made_up_ones_are_not() -> None:
    keys, clock = Keys(), FakeClock()
    cache = cache_of(keys, clock)
    settings = OAuthSettings(jwks="keys", issuer=ISSUER, audience=AUDIENCE)
    tokens = BearerTokens(cache, settings, clock)
    async with background_tasks(cache.run()):
        now_s = clock.now_ms() / 1_000
        assert (await tokens.verify(keys.issuer.token(now_s=now_s))).name == "ann"  # waits for the first fetch
        keys.issuer.keys["new"] = ec_key(1)
        token = keys.issuer.token(key="new", now_s=now_s)
        for _ in range(100):
            with pytest.raises(UnknownSigningKeyError):
                await tokens.verify(token)
        assert keys.reads == 1
        clock.advance_ms(MIN_MS)
        assert (await tokens.verify(token)).name == "ann"
        assert keys.reads == 2


async def test_known_keys_are_kept_while_the_issuer_is_away() -> None:
    keys, clock = Keys(), FakeClock()
    cache = cache_of(keys, clock)
    async with background_tasks(cache.run()):
        await async_until(lambda: len(cache.keys) == 1)
        keys.away = True
        clock.advance_ms(MIN_MS)
        assert await cache.refreshed()
        assert (len(cache.keys), cache.failures) == (1, 1)
        keys.away = False
        keys.issuer.keys["new"] = ec_key(1)

        def fetched() -> bool:
            clock.advance_ms(1_500)  # the pause before the next attempt, with its jitter
            return len(cache.keys) == 2

        await async_until(fetched)


async def test_many_who_wait_share_one_fetch() -> None:
    keys, clock = Keys(), FakeClock()
    cache = cache_of(keys, clock)
    async with background_tasks(cache.run()):
        assert all(await asyncio.gather(*(cache.refreshed() for _ in range(50))))
    assert keys.reads == 1


async def test_keys_come_from_a_url_a_file_or_the_setting_itself(tmp_path: Path) -> None:
    issuer, clock, random = Issuer(), RealClock(), SeededRandom(1)
    file = tmp_path / "keys.json"
    file.write_text(json.dumps(issuer.jwks()))
    with issuer.serving():
        for source in (issuer.url, str(file), f"file://{file}", json.dumps(issuer.jwks())):
            settings = OAuthSettings(jwks=source, issuer=ISSUER, audience=AUDIENCE)
            async with verifying_tokens(settings, clock=clock, random=random) as tokens:
                assert (await tokens.verify(issuer.token())).name == "ann"
        issuer.away = True
        with pytest.raises(UnavailableError, match="503"):
            read_jwks(issuer.url)
    with pytest.raises(UnavailableError, match="refused"):
        read_jwks(issuer.url)
    with pytest.raises(UnavailableError, match="No such file"):
        read_jwks(str(tmp_path / "none.json"))

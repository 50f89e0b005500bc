"""Logging in with a token over the wire: who is let in, for how long, and what the others are told."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.kafka_admin import code
from tests.support.kafka_security import SecureClient, SecureGateway, allow, secure_gateway
from tests.support.oauth import AUDIENCE, ISSUER, Issuer, bearer

from holdfast.gateways.kafka.settings import KafkaSettings
from holdfast.kafka.error_codes import ErrorCode
from holdfast.security.acls import Operation, ResourceType
from holdfast.security.bearer_tokens import verifying_tokens
from holdfast.security.oauth_settings import OAuthSettings
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom


@asynccontextmanager
async def oauth_gateway(directory: Path, **settings: Any) -> AsyncIterator[tuple[SecureGateway, Issuer]]:
    issuer, clock, random = Issuer(), RealClock(), SystemRandom()
    with issuer.serving():
        oauth = OAuthSettings(jwks=issuer.url, issuer=ISSUER, audience=AUDIENCE, skew_ms=0)
        async with (
            secure_gateway(directory, sasl="OAUTHBEARER,SCRAM-SHA-512", **settings) as secure,
            verifying_tokens(oauth, clock=clock, random=random) as tokens,
        ):
            secure.security.tokens = tokens
            yield secure, issuer


async def authenticated(client: SecureClient, data: bytes) -> Any:
    assert await client.handshake("OAUTHBEARER") is ErrorCode.NONE
    return await client.authenticate(data)


async def test_a_token_logs_its_subject_in_until_it_expires(tmp_path: Path) -> None:
    async with oauth_gateway(tmp_path, topics={"mine": 1, "other": 1}) as (secure, issuer):
        await secure.set_acls([allow("ann", Operation.DESCRIBE, ResourceType.TOPIC, "mine")])
        client = SecureClient(await secure.client())
        assert code(await authenticated(client, bearer(issuer.token("ann")))) is ErrorCode.NONE
        assert 290_000 < client.lifetime_ms <= 300_000
        answer = await client.ask("Metadata", topics=None)
        assert [each.name for each in answer.topics] == ["mine"]


async def test_the_listeners_own_limit_counts_if_it_is_shorter(tmp_path: Path) -> None:
    async with oauth_gateway(tmp_path, sasl_session_ms=60_000) as (secure, issuer):
        client = SecureClient(await secure.client())
        await authenticated(client, bearer(issuer.token("ann")))
        assert client.lifetime_ms == 60_000


async def test_a_session_ends_with_its_token_and_goes_on_with_the_next(tmp_path: Path) -> None:
    async with oauth_gateway(tmp_path) as (secure, issuer):
        client = SecureClient(await secure.client())
        await authenticated(client, bearer(issuer.token("ann")))
        (connection,) = secure.gateway.server.connections
        assert connection._access is not None
        login = connection._access.login
        login._expires_at_ms = secure.backend.clock.boot_ms()
        assert login.refusal() == "the session of User:ann has expired"
        await authenticated(client, bearer(issuer.token("ann")))  # KIP-368
        assert login.refusal() is None
        assert code(await client.ask("ListGroups")) is ErrorCode.NONE
        login._expires_at_ms = secure.backend.clock.boot_ms()
        await client.wire.send(16, 5, {})
        assert await client.wire.hung_up()


async def test_a_connection_does_not_change_its_principal(tmp_path: Path) -> None:
    async with oauth_gateway(tmp_path) as (secure, issuer):
        client = SecureClient(await secure.client())
        await authenticated(client, bearer(issuer.token("ann")))
        answer = await authenticated(client, bearer(issuer.token("bob")))
        assert code(answer) is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await client.wire.hung_up()


async def test_a_token_that_does_not_count_is_refused_in_words(tmp_path: Path) -> None:
    async with oauth_gateway(tmp_path) as (secure, issuer):
        for data, why in [
            (bearer(issuer.token(exp=1)), "the token has expired"),
            (bearer(issuer.token(aud="other")), "the token is for another audience"),
            (bearer(issuer.token(iss="other")), "the token is of another issuer"),
            (bearer(issuer.token()[:-9] + "AAAAAAAAA"), "the token's signature is wrong"),
            (bearer(issuer.token("ann"), "bob"), "acting for another user is not supported"),
            (b"n,,", "malformed OAUTHBEARER message"),
        ]:
            client = SecureClient(await secure.client())
            answer = await authenticated(client, data)
            assert code(answer) is ErrorCode.SASL_AUTHENTICATION_FAILED
            assert answer.error_message == f"Authentication failed: {why}"
            assert await client.wire.hung_up()
        assert secure.security.failed_logins == 6


def test_tokens_need_tls_beyond_loopback() -> None:
    assert KafkaSettings(sasl="OAUTHBEARER").sends_passwords
    assert not KafkaSettings(sasl="OAUTHBEARER", tls_cert="c", tls_key="k").sends_passwords


@pytest.mark.parametrize("jwks", ["", "keys.json"])
def test_a_server_without_keys_does_not_start(jwks: str, tmp_path: Path) -> None:
    from holdfast.app.config.settings import ServeSettings
    from holdfast.vocabulary.errors import InvalidError

    given: Any = {
        "data": tmp_path,
        "store": "memory:",
        "objects": "memory:",
        "kafka": KafkaSettings(sasl="OAUTHBEARER"),
    }
    oauth = OAuthSettings(jwks=jwks, issuer=ISSUER, audience=AUDIENCE)
    if jwks:
        ServeSettings(**given, oauth=oauth)
    else:
        with pytest.raises(InvalidError, match="jwks"):
            ServeSettings(**given, oauth=oauth)

"""A client that logs in with tokens of an identity provider, which it gets for its id and secret."""

from pathlib import Path

import pytest
from tests.gateways.kafka.test_oauth_login import oauth_gateway
from tests.support.kafka_security import allow
from tests.support.oauth import CLIENT_SECRET
from tests.support.waiting import WAIT_S

from holdfast.client.addresses import BrokerAddress
from holdfast.client.broker_login import BrokerLogin
from holdfast.client.connection import BrokerConnection
from holdfast.client.leader_client import LeaderClient
from holdfast.log.batches import Record, encode
from holdfast.log.model import ACKS_ALL
from holdfast.security.acls import Operation, ResourceType
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import SystemRandom


def login(url: str, secret: str = CLIENT_SECRET) -> BrokerLogin:
    return BrokerLogin(
        random=SystemRandom(), mechanism="OAUTHBEARER", user="ann", password=secret, token_url=f"{url}/token"
    )


async def test_an_id_and_a_secret_are_exchanged_for_a_token_at_each_login(tmp_path: Path) -> None:
    async with oauth_gateway(tmp_path, topics={"orders": 1}) as (secure, issuer):
        await secure.set_acls([allow("ann", Operation.WRITE, ResourceType.TOPIC, "orders")])
        address = f"127.0.0.1:{secure.gateway.port}"
        client = LeaderClient(address, clock=RealClock(), timeout_ms=20_000, login=login(issuer.url))
        appended = await client.append(
            await client.topic("orders"), 0, encode([Record(0, 1, None, b"x")]), acks=ACKS_ALL
        )
        assert appended.base_offset == 0
        await client.close()


async def test_a_wrong_secret_gets_no_token_and_is_not_shown(tmp_path: Path) -> None:
    async with oauth_gateway(tmp_path) as (secure, issuer):
        address = BrokerAddress("127.0.0.1", secure.gateway.port)
        connection = BrokerConnection(address, timeout_s=WAIT_S, login=login(issuer.url, "planted"))
        with pytest.raises(UnavailableError, match="HTTP status 401 for client 'ann'") as refused:
            await connection.connect()
        assert "planted" not in str(refused.value)

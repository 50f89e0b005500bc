"""How nodes log in to each other's Kafka ports: with each mechanism, over TLS, and to nobody else's."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.certificates import certificate
from tests.support.kafka_security import secure_gateway
from tests.support.waiting import WAIT_S

from holdfast.client.addresses import BrokerAddress
from holdfast.client.broker_login import BrokerLogin
from holdfast.client.connection import BrokerConnection
from holdfast.client.leader_client import LeaderClient
from holdfast.kafka.special_offsets import LATEST
from holdfast.log.batches import Record, encode
from holdfast.log.model import ACKS_ALL
from holdfast.security.cluster_secret import NODE_USER, cluster_secret
from holdfast.security.scram import (
    ITERATIONS_MIN,
    ScramError,
    ScramMechanism,
    challenge,
    credential_of,
    read_client_first,
)
from holdfast.security.scram_client import ScramExchange
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import SystemRandom


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_node_appends_at_another_one_as_itself(tmp_path: Path, mechanism: str) -> None:
    async with secure_gateway(tmp_path, topics={"orders": 1}) as secure:
        cluster = secure.gateway.cluster
        secret = await cluster_secret(cluster.store, clock=cluster.clock, random=cluster.random)
        login = BrokerLogin(random=SystemRandom(), mechanism=mechanism, user=NODE_USER, password=secret.node_password)
        client = LeaderClient(f"127.0.0.1:{secure.gateway.port}", clock=RealClock(), timeout_ms=20_000, login=login)
        topic = await client.topic("orders")
        batch = encode([Record(0, 1, None, b"x")])
        assert (await client.append(topic, 0, batch, acks=ACKS_ALL)).base_offset == 0
        assert await client.offsets("orders", {0: LATEST}) == {0: 1}
        await client.close()


async def test_a_node_of_another_cluster_is_refused(tmp_path: Path) -> None:
    async with secure_gateway(tmp_path) as secure:
        for mechanism in ("PLAIN", "SCRAM-SHA-512"):
            login = BrokerLogin(random=SystemRandom(), mechanism=mechanism, user=NODE_USER, password="0" * 64)
            address = BrokerAddress("127.0.0.1", secure.gateway.port)
            with pytest.raises(UnavailableError, match="invalid credentials"):
                await BrokerConnection(address, timeout_s=WAIT_S, login=login).connect()


async def test_a_node_checks_the_certificate_of_the_other_one(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path, "node")
    other, _ = certificate(tmp_path, "other")
    async with secure_gateway(tmp_path, tls_cert=str(cert), tls_key=str(key)) as secure:
        cluster = secure.gateway.cluster
        secret = await cluster_secret(cluster.store, clock=cluster.clock, random=cluster.random)
        login = BrokerLogin(
            random=SystemRandom(),
            mechanism="SCRAM-SHA-512",
            user=NODE_USER,
            password=secret.node_password,
            ca=str(cert),
        )
        address = BrokerAddress("127.0.0.1", secure.gateway.port)
        trusting = BrokerConnection(address, timeout_s=WAIT_S, login=login)
        await trusting.connect()
        await trusting.close()
        with pytest.raises(UnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
            await BrokerConnection(address, timeout_s=WAIT_S, login=replace(login, ca=str(other))).connect()


def test_a_server_that_does_not_prove_itself_is_left() -> None:
    mechanism = ScramMechanism.SHA_256
    credential = credential_of(mechanism, "right", salt=b"salt", iterations=ITERATIONS_MIN)
    exchange = ScramExchange(mechanism, "a,b=c", "right", nonce="client")
    first = read_client_first(exchange.first())
    assert first.user == "a,b=c"
    asked = challenge(credential, first, nonce="server")
    last = asked.verify(exchange.final(asked.message))
    exchange.verify(last)
    for bad in (b"v=AAAA", b"", b"e=other-error"):
        with pytest.raises(ScramError, match="not proven"):
            exchange.verify(bad)
    for bad in (b"r=other,s=c2FsdA==,i=4096", b"r=client,s=c2FsdA==,i=4096", b"r=clientx,s=c2FsdA==,i=999999999", b"x"):
        with pytest.raises(ScramError):
            ScramExchange(mechanism, "a", "right", nonce="client").final(bad)

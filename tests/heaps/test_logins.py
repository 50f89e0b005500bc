"""Heaps of nodes with logins and TLS: clients log in, nodes forward requests as themselves, and who is refused is told so."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.heaps.test_workers import cancelled_with_its_answer_on_the_way, use_while_its_threads_are_busy
from tests.support.certificates import certificate
from tests.support.kafka_security import PASSWORD, ROOT, secure_gateway
from tests.support.kafka_wire import KafkaGateway
from tests.support.replicas import admins_of
from tests.support.waiting import async_until

from holdfast import heaps
from holdfast.client.addresses import parse_bootstrap
from holdfast.gateways.kafka.settings import KafkaSettings
from holdfast.security.api_keys import Scope
from holdfast.security.key_store import ApiKeyStore
from holdfast.security.scram import ITERATIONS_MIN, ScramMechanism, credential_of
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError

ACCOUNT: dict[str, Any] = {"user": "root", "password": PASSWORD, "mechanism": "PLAIN"}


class SecuredNodes:
    """Two nodes with TLS, whose users log in by PLAIN alone."""

    def __init__(self, gateways: list[KafkaGateway], ca: str) -> None:
        self.gateways, self.ca = gateways, ca

    @property
    def addresses(self) -> list[str]:
        return [f"127.0.0.1:{gateway.port}" for gateway in self.gateways]


@pytest_asyncio.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[SecuredNodes]:
    cert, key = certificate(tmp_path, "node")
    settings = KafkaSettings(sasl="PLAIN", tls_cert=str(cert), tls_key=str(key), failed_login_delay_ms=0)
    async with admins_of(tmp_path, "ann", "bob", settings=settings, super_users=[ROOT]) as admins:
        gateways = [admin.gateway for admin in admins]
        credential = credential_of(ScramMechanism.SHA_512, PASSWORD, salt=b"salt", iterations=ITERATIONS_MIN)
        for gateway in gateways:
            assert gateway.backend.security is not None
            control = gateway.backend.security.control
            await control.users_seen(await control.store.set_credentials("root", [credential]))
        await gateways[0].node.agent.heaps.administration.create("jobs", 1)
        await async_until(lambda: any(each.node.agent.heaps.serves("jobs", 0) for each in gateways))
        yield SecuredNodes(gateways, str(cert))


async def test_either_node_serves_who_logs_in_and_forwards_as_itself(nodes: SecuredNodes) -> None:
    for address in nodes.addresses:  # one of them does not lead the partition
        async with heaps.connect(address, **ACCOUNT, tls_ca=nodes.ca) as client:
            await client.enqueue("jobs", address.encode())
            [message] = await client.pop("jobs", wait=10)
            assert message.payload == address.encode()
            await message.ack()


async def test_a_node_answers_who_asks_whether_it_is_there(nodes: SecuredNodes) -> None:
    async with heaps.connect(nodes.addresses[0], **ACCOUNT, tls_ca=nodes.ca) as client:
        connection = await client._nodes.connect(parse_bootstrap(nodes.addresses[0])[0])
        for _ in range(2):
            await connection.ping()
        assert (connection.pending, connection.oldest) == (0, None)
        connection.close()


async def test_an_api_key_is_enough(nodes: SecuredNodes) -> None:
    cluster = nodes.gateways[0].cluster
    store = ApiKeyStore(cluster.store, clock=cluster.clock, random=cluster.random)
    made, _ = await store.create("worker", ROOT, frozenset(Scope))
    security = nodes.gateways[0].backend.security
    assert security is not None
    await async_until(lambda: security.control.key(made.key.prefix) is not None)
    async with heaps.connect(nodes.addresses[0], api_key=made.secret, tls_ca=nodes.ca) as client:
        await client.enqueue("jobs", b"x")


async def test_a_client_logs_in_while_a_program_keeps_all_threads_of_its_loop_busy(nodes: SecuredNodes) -> None:
    await use_while_its_threads_are_busy(nodes.addresses[0], **ACCOUNT, tls_ca=nodes.ca)


async def test_a_pop_with_tls_that_is_cancelled_leaves_nothing_leased(nodes: SecuredNodes) -> None:
    """Such a connection cannot be closed for one direction."""
    async with heaps.connect(nodes.addresses[0], **ACCOUNT, tls_ca=nodes.ca) as client:
        await cancelled_with_its_answer_on_the_way(client)


async def test_no_request_comes_when_the_session_of_its_connection_is_over(tmp_path: Path) -> None:
    async with secure_gateway(tmp_path, sasl_session_ms=500) as secure:
        await secure.create_user("root")
        agent = secure.gateway.node.agent
        await agent.heaps.administration.create("jobs", 1)
        await async_until(lambda: agent.heaps.serves("jobs", 0))
        async with heaps.connect(f"127.0.0.1:{secure.gateway.port}", **ACCOUNT) as client:
            for _ in range(12):
                sent = await client.enqueue("jobs", b"x")
                await client.pop("jobs", wait=0.001, visibility=100)
                await RealClock().sleep_ms(100)
                await client.cancel("jobs", sent.message_id)  # is not tried again where its outcome is unknown
        assert secure.gateway.server.malformed == 0


async def test_a_pop_waits_for_as_long_as_it_was_asked_to_whenever_sessions_end(tmp_path: Path) -> None:
    async with secure_gateway(tmp_path, sasl_session_ms=300) as secure:
        await secure.create_user("root")
        agent = secure.gateway.node.agent
        await agent.heaps.administration.create("jobs", 1)
        await async_until(lambda: agent.heaps.serves("jobs", 0))
        async with heaps.connect(f"127.0.0.1:{secure.gateway.port}", **ACCOUNT) as client:
            popping = asyncio.ensure_future(client.pop("jobs", wait=60))
            await RealClock().sleep_ms(1_000)
            await client.enqueue("jobs", b"x")
            assert [each.payload for each in await popping] == [b"x"]


async def test_a_login_that_is_refused_is_not_tried_again(nodes: SecuredNodes) -> None:
    wrong: dict[str, Any] = {**ACCOUNT, "password": "wrong"}
    async with heaps.connect(",".join(nodes.addresses), **wrong, tls_ca=nodes.ca) as client:
        with pytest.raises(heaps.LoginRefusedError, match="invalid credentials"):
            await client.stats("jobs")
        with pytest.raises(heaps.LoginRefusedError):
            await anext(client.pop_stream("jobs"))
    failed = [each.backend.security.failed_logins for each in nodes.gateways if each.backend.security is not None]
    assert failed == [2, 0]
    unlisted: dict[str, Any] = {"user": "root", "password": PASSWORD}
    async with heaps.connect(nodes.addresses[0], **unlisted, tls_ca=nodes.ca) as client:
        with pytest.raises(heaps.LoginRefusedError, match="SCRAM-SHA-512 is not enabled: use PLAIN"):
            await client.stats("jobs")


async def test_nothing_is_sent_to_a_node_with_another_certificate(nodes: SecuredNodes, tmp_path: Path) -> None:
    other, _ = certificate(tmp_path, "other")
    async with heaps.connect(nodes.addresses[0], **ACCOUNT, tls_ca=str(other)) as client:
        with pytest.raises(heaps.LoginRefusedError, match="CERTIFICATE_VERIFY_FAILED"):  # at once, not tried again
            await client.pop("jobs")


@pytest.mark.parametrize(
    "options",
    [
        {"user": "ann"},
        {"password": "x"},
        {"user": "ann", "password": "x", "api_key": "k"},
        {"user": "ann", "password": "x", "mechanism": "GSSAPI"},
        {"tls_cert": "c", "tls_ca": "a"},
        {"tls_cert": "c", "tls_key": "k"},
    ],
)
async def test_options_that_contradict_each_other_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(InvalidError):
        async with heaps.connect(**options):  # type: ignore[arg-type]
            pass

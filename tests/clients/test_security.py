"""Every client × every mechanism × TLS, and certificates: each logs in, writes and reads, and gets no further than its ACLs."""

import asyncio
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import TopicAuthorizationFailedError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tests.support.broker import CHOICE, Broker, serving
from tests.support.certificates import certificate
from tests.support.clients.java import runner
from tests.support.kafka_python_import import KafkaConsumer, KafkaProducer
from tests.support.waiting import until

from holdfast.security import acls, scram
from holdfast.security.principals import Principal
from holdfast.security.store import SecurityStore
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import SystemRandom

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("secured"),
    pytest.mark.skipif(CHOICE != "holdfast", reason="users and ACLs are made by Holdfast's own means"),
]

USER, PASSWORD, TIMEOUT_S = "ann", "s3cret", 30
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LOGINS = [
    *(("SASL_PLAINTEXT", each) for each in MECHANISMS),
    *(("SASL_SSL", each) for each in MECHANISMS),
    ("SSL", ""),
]


@dataclass(frozen=True)
class Listener:
    """A server with logins. `server` and `client`: a certificate and its key each."""

    protocol: str
    broker: Broker
    server: tuple[Path, Path]
    client: tuple[Path, Path]

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def context(self) -> ssl.SSLContext | None:
        """For Python's clients."""
        if not self.protocol.endswith("SSL"):
            return None
        context = ssl.create_default_context(cafile=str(self.server[0]))
        if self.protocol == "SSL":
            context.load_cert_chain(*self.client)
        return context

    def librdkafka(self, mechanism: str, user: str = USER, password: str = PASSWORD) -> dict[str, Any]:
        settings = {"bootstrap.servers": self.bootstrap, "security.protocol": self.protocol, "log_level": 0}
        if mechanism:
            settings |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
        if self.protocol.endswith("SSL"):
            settings |= {"ssl.ca.location": str(self.server[0])}
        if self.protocol == "SSL":
            settings |= {"ssl.certificate.location": str(self.client[0]), "ssl.key.location": str(self.client[1])}
        return settings

    def java(self, mechanism: str) -> str:
        """A file of properties."""
        lines = [f"security.protocol={self.protocol}"]
        if mechanism:
            module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
            login = f'org.apache.kafka.common.security.{module} required username="{USER}" password="{PASSWORD}";'
            lines += [f"sasl.mechanism={mechanism}", f"sasl.jaas.config={login}"]
        if self.protocol.endswith("SSL"):
            lines += ["ssl.truststore.type=PEM", f"ssl.truststore.location={self.server[0]}"]
        if self.protocol == "SSL":
            pair = self.client[0].with_name("pair.pem")
            pair.write_text(self.client[1].read_text() + self.client[0].read_text())
            lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={pair}"]
        return "\n".join(lines) + "\n"


async def prepare(data: Path) -> None:
    """The user, and what the user may do, whether known by name or by certificate."""
    clock, random = RealClock(), SystemRandom()
    async with open_store(f"sqlite:///{data / 'store.db'}", clock=clock, random=random, create=False) as store:
        security = SecurityStore(store, clock=clock, random=random)
        made = [scram.credential_of(each, PASSWORD, salt=b"salt", iterations=4_096) for each in scram.ScramMechanism]
        for name in (USER, "admin"):
            await security.set_credentials(name, made)
        prefixed = acls.PatternType.PREFIXED
        await security.create_acls(
            acls.Acl(acls.ResourcePattern(kind, prefix, prefixed), who, acls.Operation.ALL)
            for who in (Principal(USER), Principal(f"CN={USER}"))
            for kind, prefix in ((acls.ResourceType.TOPIC, "mine-"), (acls.ResourceType.GROUP, "mine-"))
        )


@pytest.fixture(scope="session")
def listener(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Listener]]:
    """Starts the server of a protocol when it is first asked for."""
    with ExitStack() as started:

        @cache
        def start(protocol: str, session_ms: int = 0) -> Listener:
            folder = tmp_path_factory.mktemp(protocol)
            server, client = certificate(folder, "node"), certificate(folder, USER)
            options = ["--super-users", "User:admin"]
            if protocol.startswith("SASL"):
                options += ["--sasl", ",".join(MECHANISMS), "--set", f"kafka.sasl_session_ms={session_ms}"]
            if protocol.endswith("SSL"):
                options += ["--kafka-tls-cert", str(server[0]), "--kafka-tls-key", str(server[1])]
            if protocol == "SSL":
                options += ["--kafka-client-ca", str(client[0])]
            broker = started.enter_context(serving(folder, *options))
            asyncio.run(prepare(folder / "data"))
            return Listener(protocol, broker, server, client)

        yield start


@pytest.fixture(params=LOGINS, ids="-".join)
def login(request: pytest.FixtureRequest, listener: Callable[..., Listener]) -> tuple[Listener, str]:
    protocol, mechanism = request.param
    return listener(protocol), mechanism


def test_librdkafka(login: tuple[Listener, str]) -> None:
    broker, mechanism = login
    topic, settings = broker.broker.unique("mine-rd"), broker.librdkafka(mechanism)
    told: list[KafkaError | None] = []
    producer = Producer({**settings, "enable.idempotence": True})
    producer.produce(topic, b"x", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    producer.produce("other", b"x", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert told[0] is None
    assert told[1] is not None
    assert told[1].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert message.value() == b"x"
    consumer.close()


def test_kafka_python(login: tuple[Listener, str]) -> None:
    broker, mechanism = login
    topic = broker.broker.unique("mine-kp")
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": broker.protocol,
        "ssl_context": broker.context(),
    }
    if mechanism:
        settings |= {"sasl_mechanism": mechanism, "sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
    producer = KafkaProducer(**settings)
    assert producer.send(topic, b"x").get(TIMEOUT_S).offset == 0
    producer.close()
    consumer = KafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings)
    assert next(consumer).value == b"x"
    consumer.close()


def test_aiokafka(login: tuple[Listener, str]) -> None:
    broker, mechanism = login
    topic = broker.broker.unique("mine-aio")
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": broker.protocol,
        "ssl_context": broker.context(),
    }
    if mechanism:
        settings |= {"sasl_mechanism": mechanism, "sasl_plain_username": USER, "sasl_plain_password": PASSWORD}

    async def round_trip() -> Any:
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"x")
            with pytest.raises(TopicAuthorizationFailedError):
                await producer.send_and_wait("other", b"x")
        async with AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings) as consumer:
            return (await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value

    assert asyncio.run(round_trip()) == b"x"


@pytest.fixture(scope="session")
def java() -> Iterator[runner.Tools]:
    try:
        started = runner.Tools()
    except UnavailableError as missing:
        pytest.skip(str(missing))
    yield started
    started.close()


# Seconds each: without TLS, one mechanism stands for the others.
JAVA_LOGINS = [
    pytest.param(each, marks=pytest.mark.long) if each[0] == "SASL_PLAINTEXT" and each[1] != "SCRAM-SHA-512" else each
    for each in LOGINS
]


@pytest.mark.parametrize("login", JAVA_LOGINS, indirect=True, ids="-".join)
def test_java(login: tuple[Listener, str], java: runner.Tools, tmp_path: Path) -> None:
    broker, mechanism = login
    topic, config = broker.broker.unique("mine-java"), tmp_path / "client.properties"
    config.write_text(broker.java(mechanism))
    at = ("--bootstrap-server", broker.bootstrap)
    written = java.run("ConsoleProducer", *at, "--topic", topic, "--command-config", str(config), stdin="x\n")
    assert written.exit_code == 0, written.stderr
    read = java.run(
        *("ConsoleConsumer", *at, "--topic", topic, "--group", topic, "--command-config", str(config)),
        *("--from-beginning", "--max-messages", "1", "--timeout-ms", str(TIMEOUT_S * 1_000)),
    )
    assert read.stdout.strip() == "x", read.stderr


# ── what is refused, and administration ──


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_refused_in_words(listener: Callable[..., Listener], mechanism: str) -> None:
    told: list[KafkaError] = []
    settings = listener("SASL_PLAINTEXT").librdkafka(mechanism, password="wrong")
    client = Producer({**settings, "error_cb": told.append})
    until(lambda: client.poll(0.1) or told, what="the client is told")
    assert told[0].code() == KafkaError._AUTHENTICATION
    assert "invalid credentials" in told[0].str()


def test_a_producer_outlives_its_sessions(listener: Callable[..., Listener]) -> None:
    """librdkafka logs in again in between, or connects again if it was too late for that; it loses nothing."""
    broker = listener("SASL_PLAINTEXT", session_ms=1_000)
    told: list[KafkaError | None] = []
    producer = Producer(broker.librdkafka("SCRAM-SHA-512"))
    clock = RealClock()
    until_ms = clock.boot_ms() + 2_000
    topic = broker.broker.unique("mine-long")
    while clock.boot_ms() < until_ms:
        producer.produce(topic, b"x", on_delivery=lambda error, _: told.append(error))
        producer.flush(TIMEOUT_S)
    assert set(told) == {None}


def test_users_and_acls_are_managed_by_kafkas_own_admin_client(listener: Callable[..., Listener]) -> None:
    broker = listener("SASL_PLAINTEXT")
    admin: Any = AdminClient(broker.librdkafka("SCRAM-SHA-256", user="admin"))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4_096)
    admin.alter_user_scram_credentials([UserScramCredentialUpsertion("bob", info, b"of-bob")])["bob"].result(TIMEOUT_S)
    described = admin.describe_user_scram_credentials(["bob"])["bob"].result(TIMEOUT_S)
    assert [(each.mechanism, each.iterations) for each in described.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_512, 4_096)
    ]
    prefixed, permission = ResourcePatternType.PREFIXED, AclPermissionType.ALLOW
    allowed = AclBinding(ResourceType.TOPIC, "bobs-", prefixed, "User:bob", "*", AclOperation.ALL, permission)
    everything: Any = AclBindingFilter(
        ResourceType.ANY,
        None,  # type: ignore[arg-type]  # any name: the client allows it, its types do not
        ResourcePatternType.ANY,
        "User:bob",
        None,  # type: ignore[arg-type]
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    told: list[KafkaError | None] = []
    topic = broker.broker.unique("bobs")

    def produced() -> KafkaError | None:
        told.clear()
        producer = Producer(broker.librdkafka("SCRAM-SHA-512", "bob", "of-bob"))  # once refused, it does not ask again
        producer.produce(topic, b"x", on_delivery=lambda error, _: told.append(error))
        producer.flush(TIMEOUT_S)
        return told[0]

    refused = produced()
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    admin.create_acls([allowed])[allowed].result(TIMEOUT_S)
    assert admin.describe_acls(everything).result(TIMEOUT_S) == [allowed]
    until(lambda: produced() is None, what="bob may write")
    assert admin.delete_acls([everything])[everything].result(TIMEOUT_S) == [allowed]
    until(lambda: produced() is not None, what="bob may no longer write")
    admin.alter_user_scram_credentials([UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_512)])[
        "bob"
    ].result(TIMEOUT_S)
    ann: Any = AdminClient(broker.librdkafka("SCRAM-SHA-256"))
    with pytest.raises(KafkaException) as denied:
        ann.create_acls([allowed])[allowed].result(TIMEOUT_S)
    assert denied.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED

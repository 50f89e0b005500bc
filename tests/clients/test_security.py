"""Every client × every mechanism × TLS, and certificates: each logs in, writes and reads, and gets no further than its ACLs."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AiokafkaTokenProvider
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
from tests.support.broker import CHOICE
from tests.support.clients.java import runner
from tests.support.kafka_python_import import KafkaConsumer, KafkaProducer, KafkaPythonTokenProvider
from tests.support.oauth import CLIENT_SECRET
from tests.support.secured_listener import (
    LOGINS,
    OAUTH,
    PASSWORD,
    PASSWORDS,
    TIMEOUT_S,
    USER,
    Listener,
    starting_listeners,
)
from tests.support.waiting import until

from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import UnavailableError

ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("secured"),
    pytest.mark.skipif(CHOICE != "holdfast", reason="users and ACLs are made by Holdfast's own means"),
]


@pytest.fixture(scope="session")
def listener(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Listener]]:
    """Starts the server of a protocol when it is first asked for."""
    with starting_listeners(tmp_path_factory.mktemp) as start:
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
    try:
        producer.produce("other", b"x", on_delivery=lambda error, _: told.append(error))
    except KafkaException as refused:  # it was told so while it asked for the topic
        told.append(refused.args[0])
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


def test_librdkafka_gets_its_tokens_from_the_issuer(listener: Callable[..., Listener]) -> None:
    broker = listener("SASL_SSL")
    settings = {
        **{key: value for key, value in broker.librdkafka(OAUTH).items() if key != "oauth_cb"},
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": USER,
        "sasl.oauthbearer.client.secret": CLIENT_SECRET,
        "sasl.oauthbearer.token.endpoint.url": f"{broker.issuer.url}/token",
    }
    told: list[KafkaError | None] = []
    producer = Producer(settings)
    producer.produce(broker.broker.unique("mine-oidc"), b"x", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert told == [None]


class KafkaPythonTokens(KafkaPythonTokenProvider):  # type: ignore[misc]  # the client has no types
    def __init__(self, broker: Listener) -> None:
        self._broker = broker

    def token(self) -> str:
        return self._broker.issuer.token(USER)


class AiokafkaTokens(AiokafkaTokenProvider):  # type: ignore[misc]
    def __init__(self, broker: Listener) -> None:
        self._broker = broker

    async def token(self) -> str:
        return self._broker.issuer.token(USER)


def test_kafka_python(login: tuple[Listener, str]) -> None:
    broker, mechanism = login
    topic = broker.broker.unique("mine-kp")
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": broker.protocol,
        "ssl_context": broker.context(),
    }
    if mechanism == OAUTH:
        settings |= {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": KafkaPythonTokens(broker)}
    elif mechanism:
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
    if mechanism == OAUTH:
        settings |= {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": AiokafkaTokens(broker)}
    elif mechanism:
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
def java(listener: Callable[..., Listener]) -> Iterator[runner.Tools]:
    issuer = listener("SASL_SSL").issuer
    with pytest.MonkeyPatch.context() as environment:
        # The client asks nobody for tokens whom this does not name.
        environment.setenv("JAVA_TOOL_OPTIONS", f"-D{ALLOWED_URLS}={issuer.url}/token")
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


@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_a_wrong_password_is_refused_in_words(listener: Callable[..., Listener], mechanism: str) -> None:
    told: list[KafkaError] = []
    settings = listener("SASL_PLAINTEXT").librdkafka(mechanism, password="wrong")
    client = Producer({**settings, "error_cb": told.append})
    until(lambda: client.poll(0.1) or told, what="the client is told")
    assert told[0].code() == KafkaError._AUTHENTICATION
    assert "invalid credentials" in told[0].str()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", OAUTH])
def test_a_producer_outlives_its_sessions(listener: Callable[..., Listener], mechanism: str) -> None:
    """librdkafka logs in again in between, or connects again if it was too late for that; it loses nothing."""
    broker = listener("SASL_PLAINTEXT", session_ms=1_000)
    told: list[KafkaError | None] = []
    producer = Producer(broker.librdkafka(mechanism))
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

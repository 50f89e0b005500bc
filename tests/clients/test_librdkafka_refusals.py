"""confluent-kafka: what Holdfast does not offer is not advertised, is refused in words, and disturbs nobody else."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, ElectionType, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin._acl import AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from tests.support.broker import ADMIN_TIMEOUT_S, Broker
from tests.support.broker_fixtures import NewBroker
from tests.support.librdkafka_client import CLOCK, consuming, producer, send_values, take
from tests.support.waiting import until


@pytest.fixture
def holdfast(broker: Broker) -> Broker:
    if broker.kind != "holdfast":
        pytest.skip("Apache Kafka offers all of it")
    return broker


def test_transactions_are_refused_at_once_with_the_reason(holdfast: Broker) -> None:
    client = Producer({"bootstrap.servers": holdfast.bootstrap, "transactional.id": holdfast.unique("transactions")})
    with pytest.raises(KafkaException) as refused:
        client.init_transactions(30)
    error = refused.value.args[0]
    assert error.fatal()  # what is not answered in time is not
    assert "transactions are not supported" in error.str()


def test_the_newer_group_protocol_is_refused_at_once_and_the_older_one_goes_on(holdfast: Broker) -> None:
    topic, group = holdfast.create_topic("newer"), holdfast.unique("newer")
    send_values(holdfast, topic, [b"x"])
    settings = {"bootstrap.servers": holdfast.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    newer = Consumer({**settings, "group.protocol": "consumer"})
    newer.subscribe([topic])
    message = newer.poll(10)
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError._FATAL
    assert "API version not supported" in error.str()
    with consuming(holdfast, {"group.id": group}) as older:
        older.subscribe([topic])
        assert len(take(older, 1)) == 1
    began_ms = CLOCK.boot_ms()
    newer.close()
    assert CLOCK.boot_ms() - began_ms < 5_000


def test_sasl_is_refused_in_words(holdfast: Broker) -> None:
    told: list[KafkaError] = []
    settings = {
        "bootstrap.servers": holdfast.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": "secret",
        "error_cb": told.append,
    }
    client = Producer(settings)
    until(lambda: client.poll(0.1) or told, what="the client is told")
    assert told[0].code() == KafkaError._AUTHENTICATION
    assert "SASL state" in told[0].str()


def test_tls_is_refused_and_plain_clients_go_on(holdfast: Broker) -> None:
    told: list[KafkaError] = []
    client = Producer({"bootstrap.servers": holdfast.bootstrap, "security.protocol": "SSL", "error_cb": told.append})
    until(lambda: client.poll(0.1) or told, what="the client is told")
    assert told[0].code() in (KafkaError._SSL, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
    send_values(holdfast, holdfast.create_topic("plain"), [b"x"])


EVERY_ACL: Any = AclBindingFilter(
    ResourceType.ANY,
    None,  # type: ignore[arg-type]  # any name: the client allows it, its types do not
    ResourcePatternType.ANY,
    None,  # type: ignore[arg-type]
    None,  # type: ignore[arg-type]
    AclOperation.ANY,
    AclPermissionType.ANY,
)


def test_administration_that_is_not_offered_is_refused_in_words(holdfast: Broker) -> None:
    admin: Any = holdfast.admin
    credential = UserScramCredentialUpsertion("ann", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret")
    refusals: list[tuple[Callable[[], Any], int]] = [
        (lambda: admin.delete_acls([EVERY_ACL])[EVERY_ACL], KafkaError.SECURITY_DISABLED),
        (lambda: admin.describe_user_scram_credentials(["ann"])["ann"], KafkaError.RESOURCE_NOT_FOUND),
        (lambda: admin.alter_user_scram_credentials([credential])["ann"], KafkaError.UNSUPPORTED_VERSION),
    ]
    for call, code in refusals:
        with pytest.raises(KafkaException) as refused:
            call().result(ADMIN_TIMEOUT_S)
        assert refused.value.args[0].code() == code


def test_administration_that_finds_nothing_says_so(broker: Broker) -> None:
    admin: Any = broker.admin
    assert admin.describe_acls(EVERY_ACL).result(ADMIN_TIMEOUT_S) == []
    assert admin.describe_user_scram_credentials().result(ADMIN_TIMEOUT_S) == {}
    partition = TopicPartition(broker.create_topic("led"), 0)
    elected = admin.elect_leaders(ElectionType.PREFERRED, [partition]).result(ADMIN_TIMEOUT_S)
    assert elected[partition].code() == KafkaError.ELECTION_NOT_NEEDED


def test_without_auto_creation_producers_and_consumers_get_an_error(new_broker: NewBroker) -> None:
    strict = new_broker("--set", "kafka.auto_create_topics=false")
    topic = strict.unique("never")
    told: list[int] = []
    client = producer(strict, {"message.timeout.ms": 8_000, "topic.metadata.propagation.max.ms": 500})
    client.produce(topic, b"x", on_delivery=lambda error, _: told.append(error.code() if error else 0))
    assert client.flush(20) == 0
    assert told == [KafkaError.UNKNOWN_TOPIC_OR_PART]
    with consuming(strict, {"allow.auto.create.topics": True}) as reader:
        reader.subscribe([topic])
        message = reader.poll(20)
        assert message is not None
        error = message.error()
        assert error is not None
        assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert topic not in strict.admin.list_topics(timeout=10).topics
    send_values(strict, strict.create_topic("made"), [b"x"])  # on purpose they are made

"""Cluster commands against a server whose clients log in, with TLS."""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.support.command_line import Run
from tests.support.secured_listener import PASSWORD, TIMEOUT_S, USER, Listener, starting_listeners

from holdfast.cli.kafka.login_properties import login_of
from holdfast.client.broker_login import SYSTEM_CA
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import SystemRandom

TOPIC = "mine-orders"


@pytest.fixture(scope="module")
def listener(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Listener]]:
    with starting_listeners(tmp_path_factory.mktemp) as start:
        yield start


def login(listener: Listener, mechanism: str, password: str = PASSWORD) -> list[str]:
    given = listener.librdkafka(mechanism, USER, password)
    names = [name for name in given if name.startswith(("security.", "sasl.", "ssl."))]
    return [word for name in names for word in ("-X", f"{name}={given[name]}")]


@pytest.mark.parametrize(("protocol", "mechanism"), [("SASL_SSL", "SCRAM-SHA-256"), ("SSL", "")])
def test_partitions_of_a_secured_cluster_have_their_watermarks(
    run: Run, listener: Callable[..., Listener], protocol: str, mechanism: str
) -> None:
    secured = listener(protocol)
    properties = secured.librdkafka(mechanism)
    admin = AdminClient(properties)
    admin.create_topics([NewTopic(TOPIC, 1, 1)], request_timeout=TIMEOUT_S)[TOPIC].result()
    producer = Producer(properties)
    for _ in range(3):
        producer.produce(TOPIC, b"x")
    assert producer.flush(TIMEOUT_S) == 0
    data = str(secured.server[0].parent / "data")
    (row,) = run("partitions", TOPIC, "--data", data, "--json", *login(secured, mechanism)).rows
    assert (row["high_watermark"], row["state"]) == (3, "ok")
    if mechanism:
        refused = run("partitions", TOPIC, "--data", data, *login(secured, mechanism, "wrong"))
        assert refused.code != 0
        assert "login to a broker" in refused.err


def test_a_login_is_read_from_librdkafkas_properties() -> None:
    random = SystemRandom()
    assert login_of({}, random=random) is None
    made = login_of(
        {"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"},
        random=random,
    )
    assert made is not None
    assert (made.protocol, made.mechanism, made.user, made.password, made.ca) == (
        *("SASL_SSL", "PLAIN", "u", "p"),
        SYSTEM_CA,
    )


@pytest.mark.parametrize(
    ("properties", "wrong"),
    [
        ({"linger.ms": "5"}, "-X"),
        ({"security.protocol": "tls"}, "security.protocol"),
        ({"sasl.username": "u"}, "security.protocol"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "sasl.mechanism"),
    ],
)
def test_properties_that_are_no_login_are_refused(properties: dict[str, str], wrong: str) -> None:
    with pytest.raises(InvalidError, match=f"invalid {wrong}"):
        login_of(properties, random=SystemRandom())

"""Connections, serializers and settings: what they become, and what they refuse. Without a broker."""

import re
from collections.abc import Callable

import pytest

from holdfast.client import ConnectionSettings, Consumer, ConsumerSettings, ProducerSettings, Tls, TopicPartition
from holdfast.client.records.model import SerializationError
from holdfast.client.records.serializers import deserializer, serializer
from holdfast.vocabulary.errors import InvalidError


def test_a_login_over_tls_is_librdkafkas_and_shows_no_secret() -> None:
    settings = ConnectionSettings(
        "a:9092,b:9092", tls=Tls(ca_file="/ca.pem", verify_hostname=False), username="ann", password="hush"
    )
    found = settings.bootstrap()
    assert found.servers == "a:9092,b:9092"
    assert found.properties == {
        "client.id": "holdfast",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ann",
        "sasl.password": "hush",
    }
    assert "hush" not in repr(settings)


def test_an_api_key_is_a_password_of_plain() -> None:
    found = ConnectionSettings(api_key="hf_secret").bootstrap().properties
    assert found["security.protocol"] == "SASL_PLAINTEXT"
    assert (found["sasl.mechanism"], found["sasl.username"], found["sasl.password"]) == ("PLAIN", "token", "hf_secret")
    assert "hf_secret" not in repr(ConnectionSettings(api_key="hf_secret"))


def test_a_plain_address_needs_no_security_and_own_properties_win() -> None:
    found = ConnectionSettings("a:1", properties={"client.id": "mine"}).bootstrap().properties
    assert found == {"client.id": "mine"}


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ConnectionSettings("localhost"), "invalid bootstrap_servers 'localhost': must be host:port"),
        (lambda: ConnectionSettings(username="ann"), "a login needs both username and password"),
        (lambda: ConnectionSettings(username="a", password="b", api_key="c"), "either username and password, or"),
        (lambda: ConnectionSettings(sasl_mechanism="MD5"), "invalid sasl_mechanism 'MD5': must be one of SCRAM"),
        (lambda: Tls(key_file="k"), "both certificate_file and key_file"),
        (lambda: ProducerSettings(compression="rar"), "invalid compression 'rar': must be one of none, gzip"),
        (lambda: ProducerSettings(linger_ms=-1), "invalid linger_ms -1"),
        (lambda: ConsumerSettings(isolation="serializable"), "invalid isolation"),
        (lambda: Consumer("a:1"), "a consumer needs at least one topic or partition"),
        (lambda: Consumer("a:1", group_id="g"), "a consumer of a group needs at least one topic"),
        (lambda: Consumer("a:1", "t", group_id="g", start=5), "use seek for another position"),
        (lambda: Consumer("a:1", "t", start="yesterday"), "invalid start 'yesterday': must be earliest"),
        (lambda: Consumer("a:1", "t", start=True), "invalid start True: must be an offset"),
        (
            lambda: Consumer("a:1", "t", value_deserializer="xml"),
            "invalid value deserializer 'xml': must be bytes, str",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_what_is_allowed(make: Callable[[], object], text: str) -> None:
    with pytest.raises(InvalidError, match=re.escape(text)):
        make()


def test_serializers_by_name_and_by_function() -> None:
    assert serializer("str", "value")("ä") == b"\xc3\xa4"
    assert serializer("json", "value")({"a": 1}) == b'{"a":1}'
    assert serializer(lambda given: b"%d" % given, "value")(7) == b"7"
    assert deserializer("bytes", "value") is None
    read = deserializer("json", "value")
    assert read is not None
    assert read(b"[1]") == [1]


@pytest.mark.parametrize(
    ("name", "given", "text"),
    [
        ("bytes", "text", "pass bytes, or choose the serializer str or json"),
        ("str", 7, "int given: pass text"),
        ("json", {1, object}, "invalid key"),
        (lambda _: "no bytes", 1, "must be a function that returns bytes"),
    ],
)
def test_what_cannot_be_serialized_is_refused_by_field(name: str, given: object, text: str) -> None:
    with pytest.raises(SerializationError, match=re.escape(text)):
        serializer(name, "key")(given)


def test_a_partition_reads_like_kafkas_tools_write_it() -> None:
    assert str(TopicPartition("orders", 3)) == "orders-3"

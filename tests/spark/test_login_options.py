"""Logins and TLS as options: what the connector's names mean here, and what is refused without showing a secret."""

import pickle

import pytest

from holdfast.client.broker_login import SYSTEM_CA
from holdfast.client.cluster_address import ClusterAddress
from holdfast.spark.cluster_options import address_options, parse_cluster_address
from holdfast.spark.login_options import login_options, parse_login
from holdfast.spark.sink.options import parse_sink_options
from holdfast.spark.source.options import parse_source_options
from holdfast.vocabulary.errors import InvalidError

JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="ann" password="pl\\"anted; x";'
SCRAM = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "SCRAM-SHA-512"}
TLS = {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": "/ca.pem"}


def test_a_jaas_entry_and_a_user_with_a_password_are_the_same() -> None:
    named = {**SCRAM, **TLS, "kafka.sasl.username": "ann", "kafka.sasl.password": 'pl"anted; x'}
    login = parse_login({**SCRAM, **TLS, "kafka.sasl.jaas.config": JAAS})
    assert login == parse_login(named)
    assert login is not None
    assert (login.mechanism, login.user, login.password, login.ca) == ("SCRAM-SHA-512", "ann", 'pl"anted; x', "/ca.pem")
    assert login.properties()["security.protocol"] == "SASL_SSL"


def test_tls_without_a_store_trusts_the_system_and_certificates_are_pem() -> None:
    login = parse_login({"kafka.security.protocol": "SSL", "kafka.ssl.keystore.location": "/own.pem"})
    assert login is not None
    assert (login.ca, login.certificate, login.checks_name) == (SYSTEM_CA, "/own.pem", True)
    assert "ssl.ca.location" not in login.properties()
    unchecked = parse_login({"kafka.security.protocol": "SSL", "kafka.ssl.endpoint.identification.algorithm": ""})
    assert unchecked is not None
    assert not unchecked.checks_name


def test_source_and_sink_take_them_and_an_address_gives_them_back() -> None:
    given = {**SCRAM, **TLS, "kafka.sasl.username": "ann", "kafka.sasl.password": " planted "}
    options = parse_source_options({"bootstrap": "a:1", "topics": "t", **given}, streaming=True)
    _, address = parse_sink_options({"kafka.bootstrap.servers": "a:1", "topic": "t", **given})
    assert options.cluster_address == address
    assert address.login is not None
    assert address.login.password == " planted "
    assert parse_cluster_address(address_options(address)) == address
    travelled = pickle.loads(pickle.dumps(address))
    assert (travelled, hash(travelled)) == (address, hash(address)), "one cluster stays open in an executor"
    assert "planted" not in repr(address) + repr(address.login)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kafka.security.protocol": "TLS"}, "kafka.security.protocol 'TLS'"),
        ({**SCRAM, "kafka.sasl.mechanism": "GSSAPI"}, "kafka.sasl.mechanism 'GSSAPI'"),
        ({**SCRAM, "kafka.sasl.jaas.config": "planted"}, "kafka.sasl.jaas.config '…'.*ScramLoginModule"),
        ({**SCRAM, "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": JAAS}, "jaas.config '…'.*for PLAIN"),
        ({**SCRAM, "kafka.sasl.jaas.config": JAAS, "kafka.sasl.password": "planted"}, "only one of the two"),
        ({**SCRAM, "kafka.sasl.username": "ann"}, "kafka.sasl.password"),
        ({"kafka.sasl.password": "planted"}, "kafka.sasl.password '…'.*absent"),
        ({"kafka.security.protocol": "SSL", "kafka.ssl.truststore.type": "JKS"}, "truststore.type 'JKS'.*PEM"),
        ({"kafka.security.protocol": "SSL", "kafka.ssl.key.location": "/k"}, "keystore.location"),
        ({"kafka.security.protocol": "SSL", "kafka.ssl.keystore.key": "planted"}, "kafka.ssl.keystore.key '…'"),
    ],
)
def test_what_cannot_be_is_refused_without_its_secret(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidError, match=message) as refused:
        parse_cluster_address({"bootstrap": "a:1", **given})
    assert "planted" not in str(refused.value)


def test_an_address_without_a_login_is_what_it_was() -> None:
    assert address_options(ClusterAddress(bootstrap="a:1")) == {"bootstrap": "a:1"}


OAUTH = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "OAUTHBEARER",
    "kafka.sasl.oauthbearer.token.endpoint.url": "https://id.test/token",
}
OAUTH_JAAS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'clientId="job" clientSecret="planted";'
)
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


def test_a_client_of_an_identity_provider_is_named_as_javas_is() -> None:
    java = {**OAUTH, "kafka.sasl.jaas.config": OAUTH_JAAS, "kafka.sasl.login.callback.handler.class": HANDLER}
    login = parse_login(java)
    assert login is not None
    assert login == parse_login({**OAUTH, "kafka.sasl.username": "job", "kafka.sasl.password": "planted"})
    assert (login.user, login.password, login.token_url) == ("job", "planted", "https://id.test/token")
    assert "planted" not in repr(login)
    properties = login.properties()
    assert properties["sasl.oauthbearer.method"] == "oidc"
    assert properties["sasl.oauthbearer.client.secret"] == "planted"
    assert "sasl.password" not in properties
    assert parse_login(login_options(login)) == login


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"kafka.sasl.oauthbearer.token.endpoint.url": "http://id.test/token"}, "token.endpoint.url.*https"),
        ({"kafka.sasl.oauthbearer.token.endpoint.url": ""}, r"token\.endpoint\.url"),
        ({"kafka.sasl.login.callback.handler.class": "org.acme.Handler"}, r"callback\.handler\.class"),
        ({"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": ""}, "unless kafka.sasl.mechanism is OAUTHBEARER"),
        ({"kafka.sasl.jaas.config": JAAS}, "OAuthBearerLoginModule"),
    ],
)
def test_an_oauth_option_that_would_not_count_is_refused(changed: dict[str, str], named: str) -> None:
    given = {**OAUTH, "kafka.sasl.jaas.config": OAUTH_JAAS, **changed}
    if changed.get("kafka.sasl.mechanism"):
        given |= {"kafka.sasl.username": "ann", "kafka.sasl.password": "planted"}
    with pytest.raises(InvalidError, match=named) as refused:
        parse_login(given)
    assert "planted" not in str(refused.value)

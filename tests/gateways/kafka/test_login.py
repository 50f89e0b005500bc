"""Logging in over the wire: the order of requests, what is refused, and what ends a connection."""

import asyncio
from pathlib import Path

import pytest
from tests.support.cluster import LocalCluster
from tests.support.kafka_admin import code
from tests.support.kafka_security import (
    MECHANISMS,
    PASSWORD,
    ROOT,
    SecureClient,
    SecureGateway,
    scram_final,
    secure_gateway,
)
from tests.support.kafka_wire import API_VERSIONS, PRODUCE, gateway_of, produce_request
from tests.support.partitions import batch
from tests.support.waiting import async_until

from holdfast.gateways.kafka import api_rules
from holdfast.gateways.kafka.api import Api
from holdfast.gateways.kafka.api_rules import MissingRuleError
from holdfast.gateways.kafka.api_table import APIS
from holdfast.gateways.kafka.settings import KafkaSettings
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.error_codes import ErrorCode
from holdfast.security.cluster_secret import NODE_USER
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import SeededRandom

NEEDS_LOGIN = sorted(key for key, api in APIS.items() if not api.rule.before_login)


def test_an_api_without_a_rule_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(api_rules.RULES, ApiKey.LIST_GROUPS)
    with pytest.raises(MissingRuleError, match="ListGroups has no rule"):
        Api(key=ApiKey.LIST_GROUPS, versions=(0, 5), flexible_from=3)


def test_every_rule_is_of_an_api_that_is_served() -> None:
    assert {int(key) for key in api_rules.RULES} == set(APIS)
    assert {key for key, rule in api_rules.RULES.items() if rule.before_login} == {
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS.split(","))
async def test_a_client_logs_in_and_is_served(tmp_path: Path, mechanism: str) -> None:
    async with secure_gateway(tmp_path, topics={"orders": 1}) as secure:
        client = await secure.logged_in(ROOT.name, mechanism)
        answer = await client.ask("Metadata", topics=None)
        assert [each.name for each in answer.topics] == ["orders"]
        assert client.lifetime_ms == 0


async def test_without_a_login_only_versions_are_answered(tmp_path: Path) -> None:
    async with secure_gateway(tmp_path) as secure:
        client = await secure.client()
        assert code(await client.ask(API_VERSIONS, 4, {})) is ErrorCode.NONE
        for key in NEEDS_LOGIN:
            client = await secure.client()
            body = b"\0" * 64  # it is not looked at
            head = key.to_bytes(2, "big") + APIS[key].versions[0].to_bytes(2, "big") + bytes(4) + b"\xff\xff"
            await client.send_bytes((len(head) + len(body)).to_bytes(4, "big") + head + body)
            assert await client.hung_up(), APIS[key].name


async def test_records_that_follow_a_login_too_early_are_not_appended(tmp_path: Path) -> None:
    async with secure_gateway(tmp_path, topics={"orders": 1}) as secure:
        client = await secure.client()
        for _ in range(3):  # together they would be a run, which is appended without a look at each
            await client.send(PRODUCE, 9, produce_request("orders", {0: batch("x")}))
        assert await client.hung_up()
        assert (await secure.backend.log.describe("orders", 0)).high_watermark == 0


@pytest.mark.parametrize("mechanism", MECHANISMS.split(","))
@pytest.mark.parametrize(("name", "password"), [("ann", "wrong"), ("nobody", PASSWORD), ("ann", "")])
async def test_a_wrong_user_or_password_ends_the_connection(
    tmp_path: Path, mechanism: str, name: str, password: str
) -> None:
    async with secure_gateway(tmp_path) as secure:
        await secure.create_user("ann")
        client = SecureClient(await secure.client())
        assert await client.log_in(mechanism, name, password) is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await client.wire.hung_up()
        assert secure.security.failed_logins == 1


async def test_an_unknown_user_is_challenged_like_a_known_one(tmp_path: Path) -> None:
    async with secure_gateway(tmp_path) as secure:
        for _ in range(2):
            client = SecureClient(await secure.client())
            await client.handshake("SCRAM-SHA-512")
            answer = await client.authenticate(b"n,,n=nobody,r=abc")
            assert code(answer) is ErrorCode.NONE
            assert b",s=" in answer.auth_bytes


async def test_unknown_users_are_challenged_alike_by_every_node(tmp_path: Path) -> None:
    """Otherwise a salt that differs from node to node would say that there is no such user."""
    cluster = LocalCluster(tmp_path)
    settings = KafkaSettings(sasl="SCRAM-SHA-512")
    try:
        async with gateway_of(cluster, "one", settings) as one, gateway_of(cluster, "two", settings) as two:
            salts = set()
            for gateway in (one, two):
                client = SecureClient(await gateway.client())
                await client.handshake("SCRAM-SHA-512")
                answer = await client.authenticate(b"n,,n=nobody,r=abc")
                salts.add(bytes(answer.auth_bytes).split(b",")[1])
            assert len(salts) == 1
    finally:
        await cluster.end()


async def test_a_mechanism_that_is_off_is_refused_with_those_that_are_on(tmp_path: Path) -> None:
    async with secure_gateway(tmp_path, sasl="SCRAM-SHA-512") as secure:
        client = SecureClient(await secure.client())
        answer = await client.ask("SaslHandshake", mechanism="PLAIN")
        assert (code(answer), answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ("SCRAM-SHA-512",))
        assert await client.wire.hung_up()


async def test_the_mechanism_of_nodes_is_theirs_alone_unless_it_is_on(tmp_path: Path) -> None:
    async with secure_gateway(tmp_path, sasl="OAUTHBEARER") as secure:
        await secure.create_user("ann")
        client = SecureClient(await secure.client())
        assert await client.handshake("SCRAM-SHA-512") is ErrorCode.NONE
        answer = await client.authenticate(b"n,,n=ann,r=abc")
        assert code(answer) is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "SCRAM-SHA-512 is not enabled: use OAUTHBEARER" in answer.error_message
        assert await client.wire.hung_up()
        other = SecureClient(await secure.client())
        refused = await other.ask("SaslHandshake", mechanism="SCRAM-SHA-256")
        assert (code(refused), refused.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ("OAUTHBEARER",))
        node = SecureClient(await secure.client())
        assert await node.log_in("SCRAM-SHA-512", NODE_USER, secure.security.secret.node_password) is ErrorCode.NONE


async def test_a_handshake_without_headers_after_it_is_listed_and_refused(tmp_path: Path) -> None:
    async with secure_gateway(tmp_path) as secure:
        client = SecureClient(await secure.client())
        listed = {each.api_key: each for each in (await client.wire.ask(API_VERSIONS, 4, {})).api_keys}
        assert listed[ApiKey.SASL_HANDSHAKE].min_version == 0  # without it, older librdkafka does not log in at all
        assert code(await client.ask("SaslHandshake", 0, mechanism="PLAIN")) is ErrorCode.ILLEGAL_SASL_STATE
        assert await client.wire.hung_up()


async def test_authenticating_without_a_handshake_ends_the_connection(tmp_path: Path) -> None:
    async with secure_gateway(tmp_path) as secure:
        client = SecureClient(await secure.client())
        assert code(await client.authenticate(b"\0ann\0x")) is ErrorCode.ILLEGAL_SASL_STATE
        assert await client.wire.hung_up()


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"ann", b"other\0ann\0" + PASSWORD.encode(), b"\xff\0\xff\0\xff", b"\0" * 9]
)
async def test_a_plain_message_that_is_not_understood_ends_the_connection(tmp_path: Path, data: bytes) -> None:
    async with secure_gateway(tmp_path) as secure:
        await secure.create_user("ann")
        client = SecureClient(await secure.client())
        await client.handshake("PLAIN")
        assert code(await client.authenticate(data)) is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await client.wire.hung_up()


async def test_a_request_larger_than_a_login_ends_the_connection(tmp_path: Path) -> None:
    async with secure_gateway(tmp_path, login_bytes_max=1_024) as secure:
        client = await secure.client()
        await client.send_bytes((1_025).to_bytes(4, "big"))
        assert await client.hung_up()
        logged_in = await secure.logged_in(ROOT.name)
        answer = await logged_in.ask("DescribeGroups", groups=["g" * 300 + str(n) for n in range(10)])
        assert len(answer.groups) == 10


async def test_a_client_that_does_not_log_in_is_dropped(tmp_path: Path) -> None:
    async with secure_gateway(tmp_path, login_ms=50) as secure:
        await secure.client()
        await async_until(lambda: secure.gateway.server.connections)
        (connection,) = secure.gateway.server.connections
        now_ms = secure.backend.clock.boot_ms()
        assert connection.close_reason(now_ms) is None or now_ms > connection.active_at_ms + 50
        assert connection.close_reason(now_ms + 51) == "not authenticated within 50 ms"


async def replayed(secure: SecureGateway) -> ErrorCode:
    """What somebody gets who repeats the login of another."""
    await secure.create_user("ann")
    challenges = []
    for _ in range(2):
        client = SecureClient(await secure.client())
        await client.handshake("SCRAM-SHA-256")
        challenges.append(bytes((await client.authenticate(b"n,,n=ann,r=abc")).auth_bytes))
    overheard = scram_final("SCRAM-SHA-256", "n=ann,r=abc", challenges[0], PASSWORD)
    return code(await client.authenticate(overheard))


async def test_a_login_that_was_overheard_cannot_be_repeated(tmp_path: Path) -> None:
    async with secure_gateway(tmp_path) as secure:
        assert await replayed(secure) is ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_a_nonce_that_is_used_twice_would_be_noticed(tmp_path: Path) -> None:
    """Planted: without a fresh nonce for each exchange, the test above fails."""

    class Stuck(SeededRandom):
        def token(self) -> str:
            return "0" * 20

    async with secure_gateway(tmp_path) as secure:
        secure.security.random = Stuck(1)
        assert await replayed(secure) is ErrorCode.NONE


async def test_a_listener_without_sasl_says_so(tmp_path: Path) -> None:
    async with secure_gateway(tmp_path, sasl="") as secure:
        client = SecureClient(await secure.client())
        assert await client.handshake("PLAIN") is ErrorCode.ILLEGAL_SASL_STATE
        answer = await client.authenticate(b"\0a\0b")
        assert (code(answer), "no SASL" in answer.error_message) == (ErrorCode.ILLEGAL_SASL_STATE, True)


# ── sessions ──


async def test_a_session_that_is_over_ends_the_connection_unless_it_was_renewed(tmp_path: Path) -> None:
    async with secure_gateway(tmp_path, sasl_session_ms=60_000) as secure:
        renewed, idle = await secure.logged_in("ann"), await secure.logged_in("ann")
        assert (renewed.lifetime_ms, idle.lifetime_ms) == (60_000, 60_000)
        logins = [each._access.login for each in secure.gateway.server.connections if each._access is not None]
        for login in logins:
            login._expires_at_ms = secure.backend.clock.boot_ms()  # 60 s later
        assert await renewed.log_in("SCRAM-SHA-256", "ann") is ErrorCode.NONE
        assert code(await renewed.ask("DescribeCluster")) is ErrorCode.NONE
        await idle.wire.send(ApiKey.DESCRIBE_CLUSTER, 0, {})
        assert await idle.wire.hung_up()


@pytest.mark.parametrize(
    ("mechanism", "name", "refusal"),
    [
        ("SCRAM-SHA-256", "bob", ErrorCode.SASL_AUTHENTICATION_FAILED),
        ("SCRAM-SHA-512", "ann", ErrorCode.ILLEGAL_SASL_STATE),
    ],
)
async def test_a_connection_stays_with_its_user_and_mechanism(
    tmp_path: Path, mechanism: str, name: str, refusal: ErrorCode
) -> None:
    async with secure_gateway(tmp_path) as secure:
        await secure.create_user("bob")
        client = await secure.logged_in("ann", "SCRAM-SHA-256")
        assert await client.log_in(mechanism, name) is refusal
        assert await client.wire.hung_up()


async def test_a_deleted_user_is_served_nothing_more(tmp_path: Path) -> None:
    async with secure_gateway(tmp_path) as secure:
        ann, bob = await secure.logged_in("ann"), await secure.logged_in("bob", "PLAIN")
        control = secure.security.control
        await control.users_seen(await control.store.delete_credentials("ann") or 0)
        await ann.wire.send(ApiKey.DESCRIBE_CLUSTER, 0, {})
        assert await ann.wire.hung_up()
        assert code(await bob.ask("DescribeCluster")) is ErrorCode.NONE
        await secure.create_user("bob", "another password")
        await bob.wire.send(ApiKey.DESCRIBE_CLUSTER, 0, {})
        assert await bob.wire.hung_up()


async def test_many_logins_at_once_all_succeed(tmp_path: Path) -> None:
    async with secure_gateway(tmp_path) as secure:
        await secure.create_user("ann")
        clients = await asyncio.gather(*(secure.logged_in("ann", "PLAIN") for _ in range(10)))
        assert len(clients) == 10


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"sasl": "SCRAM-MD5"}, "sasl"),
        ({"tls_cert": "a.pem"}, "tls_key"),
        ({"tls_key": "a.pem"}, "tls_cert"),
        ({"client_ca": "a.pem"}, "client_ca"),
        ({"principal_rules": "RULE:x"}, "principal_rules"),
        ({"login_bytes_max": 1}, "login_bytes_max"),
        ({"sasl_session_ms": -1}, "sasl_session_ms"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(given: dict[str, object], what: str) -> None:
    with pytest.raises(InvalidError, match=what):
        KafkaSettings(**given)  # type: ignore[arg-type]

"""API keys as passwords of SASL PLAIN, and what the audit log has of Kafka's clients."""

from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.kafka_admin import code
from tests.support.kafka_security import SecureClient, SecureGateway, allow, secure_gateway

from holdfast.kafka.error_codes import ErrorCode
from holdfast.security.acls import Operation, ResourceType
from holdfast.security.api_keys import Scope
from holdfast.security.audit import AuditEvent
from holdfast.security.principals import Principal
from holdfast.vocabulary.errors import HoldfastError


async def key_of(secure: SecureGateway, *scopes: Scope) -> str:
    control = secure.security.control
    made, version = await control.key_store.create("tests", Principal("ann"), frozenset(scopes or Scope))
    await control.keys_seen(version)
    return made.secret


async def delete(client: SecureClient, topic: str) -> ErrorCode:
    answer = await client.ask("DeleteTopics", 5, topic_names=[topic], timeout=timedelta(seconds=1))
    return code(answer.responses[0])


async def test_a_key_logs_in_as_its_principal_within_its_scopes_until_it_is_revoked(tmp_path: Path) -> None:
    async with secure_gateway(tmp_path, topics={"orders": 1}) as secure:
        await secure.set_acls([allow("ann", Operation.ALL, ResourceType.TOPIC, "orders")])
        reader, administrator = await key_of(secure, Scope.READ), await key_of(secure)
        client = SecureClient(await secure.client())
        assert await client.log_in("PLAIN", "token", reader) is ErrorCode.NONE
        assert await delete(client, "orders") is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        control = secure.security.control
        await control.keys_seen(await control.key_store.revoke(reader.split("_")[1]))
        with pytest.raises((HoldfastError, OSError, EOFError)):
            await delete(client, "orders")
        again = SecureClient(await secure.client())
        assert await again.log_in("PLAIN", "token", reader) is ErrorCode.SASL_AUTHENTICATION_FAILED
        other = SecureClient(await secure.client())
        assert await other.log_in("PLAIN", "whoever", administrator) is ErrorCode.NONE
        assert await delete(other, "orders") is ErrorCode.NONE


async def test_administration_and_refusals_are_audited_and_listings_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[AuditEvent] = []
    async with secure_gateway(tmp_path, topics={"orders": 1}) as secure:
        monkeypatch.setattr(secure.security.audit, "record", events.append)
        await secure.set_acls([allow("ann", Operation.READ, ResourceType.TOPIC, "others")])
        client = await secure.logged_in("ann")
        await client.ask("Metadata", topics=None)
        assert events == []
        await delete(client, "orders")
        await delete(await secure.logged_in("root"), "orders")
        await SecureClient(await secure.client()).log_in("PLAIN", "ann", "wrong")
    assert [(each.principal, each.action, each.resource, each.outcome) for each in events] == [
        ("User:ann", "DeleteTopics delete", "topic:orders", "refused"),
        ("User:root", "DeleteTopics delete", "topic:orders", "allowed"),
        ("", "login PLAIN", "", "refused"),
    ]
    assert events[0].host == "127.0.0.1"
    assert events[0].request

"""Heap requests that destroy messages take a confirmation token over the Kafka port, too."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.gateways.heap.test_permissions import asked, serves_both
from tests.support.kafka_security import SecureGateway, allow, secure_gateway
from tests.support.waiting import async_until

from holdfast.heap.model import NewMessage
from holdfast.heap.service import HeapService
from holdfast.heap.wire import (
    ConfirmRequest,
    DeadLettersRequest,
    DeleteRequest,
    DescribeRequest,
    MoveRequest,
    PurgeRequest,
)
from holdfast.kafka.error_codes import ErrorCode
from holdfast.log.topics import UnknownTopicError
from holdfast.security.acls import Operation, ResourceType
from holdfast.security.confirmations import UnconfirmedError
from holdfast.vocabulary.errors import InvalidError

HEAP = "jobs"


@pytest.fixture
async def secure(tmp_path: Path) -> AsyncIterator[SecureGateway]:
    """A heap with a message and a dead letter; ann and bob may do everything with it."""
    async with secure_gateway(tmp_path) as made:
        heaps = heaps_of(made)
        await heaps.administration.create(HEAP, 1, {}, {"durability": "local"})
        await async_until(lambda: serves_both(heaps, HEAP))
        await heaps.enqueue(HEAP, NewMessage(payload=b"waits"))
        dead = await heaps.enqueue(HEAP, NewMessage(payload=b"failed"))
        await made.set_acls(allow(name, Operation.ALL, ResourceType.TOPIC, HEAP) for name in ("ann", "bob"))
        await asked(await made.logged_in("ann"), MoveRequest(topic=HEAP, message_id=dead.message_id))
        await async_until(lambda: letters(heaps))
        yield made


def heaps_of(secure: SecureGateway) -> HeapService:
    return secure.gateway.node.agent.heaps


async def letters(heaps: HeapService) -> int:
    return sum(each.ready for each in await heaps.stats(f"{HEAP}.dlq"))


REQUESTS: list[tuple[str, type[Any], dict[str, Any]]] = [
    ("heap.purge", PurgeRequest, {}),
    ("heap.dlq.delete", DeadLettersRequest, {"action": "delete"}),
    ("heap.delete", DeleteRequest, {}),
]


@pytest.mark.parametrize(("action", "kind", "more"), REQUESTS)
async def test_a_request_that_destroys_messages_takes_a_token_of_who_asks_for_exactly_this(
    secure: SecureGateway, action: str, kind: type[Any], more: dict[str, Any]
) -> None:
    ann, bob = await secure.logged_in("ann"), await secure.logged_in("bob")

    async def refused(**given: Any) -> str:
        with pytest.raises(UnconfirmedError) as caught:
            await asked(ann, kind(topic=HEAP, **more, **given))
        return str(caught.value)

    others = next(each for each, *_ in REQUESTS if each != action)
    for_else, _ = await asked(ann, ConfirmRequest(topic=HEAP, action=others))
    of_bob, _ = await asked(bob, ConfirmRequest(topic=HEAP, action=action))
    token, _ = await asked(ann, ConfirmRequest(topic=HEAP, action=action))
    assert "force=true and a confirmation_token are needed" in await refused()
    assert "needed" in await refused(confirmation_token=token)
    assert "needed" in await refused(partition=0)
    assert "unknown" in await refused(force=True, confirmation_token="made up")
    assert "something else" in await refused(force=True, confirmation_token=for_else)
    assert "something else" in await refused(force=True, confirmation_token=of_bob)
    assert "needed" in await refused(forwarded=True), "only a node forwards"
    assert [each.ready for each in await heaps_of(secure).stats(HEAP)] == [1]
    assert await letters(heaps_of(secure)) == 1
    await asked(ann, kind(topic=HEAP, force=True, confirmation_token=token, **more))
    if kind is DeleteRequest:
        with pytest.raises(UnknownTopicError):
            await asked(ann, DescribeRequest(topic=HEAP))
    else:
        assert "was used" in await refused(force=True, confirmation_token=token)


async def test_a_dry_run_takes_no_token(secure: SecureGateway) -> None:
    ann = await secure.logged_in("ann")
    report = await asked(ann, DeadLettersRequest(topic=HEAP, action="delete", dry_run=True))
    assert (report.matched, report.changed) == (1, 0)


async def test_what_takes_no_token_is_not_confirmed(secure: SecureGateway) -> None:
    with pytest.raises(InvalidError, match=r"must be one of heap.delete, heap.dlq.delete, heap.purge"):
        await asked(await secure.logged_in("ann"), ConfirmRequest(topic=HEAP, action="topic.delete"))


async def test_kafkas_own_delete_topics_leaves_heaps_alone(secure: SecureGateway) -> None:
    root = await secure.logged_in("root")
    topic_id = (await heaps_of(secure).heap(HEAP)).id
    named: list[dict[str, Any]] = [{"name": HEAP, "topic_id": None}, {"name": f"{HEAP}.dlq", "topic_id": None}]
    named.append({"name": None, "topic_id": UUID(hex=topic_id)})
    answer = await root.ask("DeleteTopics", topics=named, timeout=timedelta(seconds=1))
    assert {each.error_code for each in answer.responses} == {ErrorCode.POLICY_VIOLATION}
    assert "holdfast heap delete" in answer.responses[0].error_message
    assert [each.ready for each in await heaps_of(secure).stats(HEAP)] == [1]

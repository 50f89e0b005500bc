"""Confirmation tokens: good once, for one action on one resource by one principal, until they expire, on any node."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from holdfast.contracts.store import Store
from holdfast.security.confirmations import (
    CONFIRMATIONS,
    Action,
    Confirmations,
    ConfirmationSettings,
    UnconfirmedError,
)
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import SystemRandom

RANDOM = SystemRandom()
REQUIRED = ConfirmationSettings(required="topic.delete, group.delete")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest_asyncio.fixture
async def store(clock: FakeClock) -> AsyncIterator[Store]:
    async with open_store("memory:", clock=clock, random=RANDOM) as opened:
        yield opened


def node(store: Store, clock: FakeClock, settings: ConfirmationSettings = REQUIRED) -> Confirmations:
    return Confirmations(store, clock=clock, random=RANDOM, settings=settings)


async def test_a_token_is_good_once_on_any_node(store: Store, clock: FakeClock) -> None:
    made = await node(store, clock).create("topic.delete", "orders", "User:ann")
    other = node(store, clock)
    for action, resource, principal in (
        (Action.DELETE_TOPIC, "payments", "User:ann"),
        (Action.DELETE_GROUP, "orders", "User:ann"),
        (Action.DELETE_TOPIC, "orders", "User:eve"),
    ):
        with pytest.raises(UnconfirmedError, match="something else"):
            await other.check(action, resource, force=True, token=made.token, principal=principal)
    with pytest.raises(UnconfirmedError, match="force=true"):
        await other.check(Action.DELETE_TOPIC, "orders", force=False, token=made.token, principal="User:ann")
    await other.check(Action.DELETE_TOPIC, "orders", force=True, token=made.token, principal="User:ann")
    with pytest.raises(UnconfirmedError, match="was used"):
        await other.check(Action.DELETE_TOPIC, "orders", force=True, token=made.token, principal="User:ann")


async def test_a_token_expires_and_is_forgotten(store: Store, clock: FakeClock) -> None:
    ours = node(store, clock)
    made = [await ours.create("topic.delete", f"t{n}") for n in range(2)]
    clock.advance_ms(REQUIRED.ttl_ms)
    with pytest.raises(UnconfirmedError, match="expired"):
        await ours.check(Action.DELETE_TOPIC, "t0", force=True, token=made[0].token)
    await ours.create("topic.delete", "next")
    stored = (await store.scan(CONFIRMATIONS, CONFIRMATIONS + "~")).entries
    assert len(stored) == 1
    assert made[1].token.encode() not in stored[0].value + stored[0].key.encode()


async def test_what_needs_none_and_what_always_does(store: Store, clock: FakeClock) -> None:
    ours = node(store, clock, ConfirmationSettings())
    await ours.check(Action.DELETE_TOPIC, "orders", force=False, token="")
    with pytest.raises(UnconfirmedError):
        await ours.check(Action.PURGE_HEAP, "jobs", force=False, token="")
    assert ConfirmationSettings(required="all").needs(Action.DELETE_PIPELINE)


async def test_bad_input_is_refused(store: Store, clock: FakeClock) -> None:
    for action, resource in (("topic.drop", "orders"), ("topic.delete", ""), ("topic.delete", "x" * 301)):
        with pytest.raises(InvalidError):
            await node(store, clock).create(action, resource)
    for settings in ({"required": "topic.drop"}, {"ttl_ms": 1}):
        with pytest.raises(InvalidError):
            ConfirmationSettings(**settings)


async def test_nobody_keeps_others_from_confirming(store: Store, clock: FakeClock) -> None:
    ours = node(store, clock)
    for _ in range(50):
        await ours.create("topic.delete", "orders", "User:eve")
    with pytest.raises(InvalidError, match="fewer than 50"):
        await ours.create("topic.delete", "orders", "User:eve")
    await ours.create("topic.delete", "orders", "User:ann")
    clock.advance_ms(REQUIRED.ttl_ms)
    await ours.create("topic.delete", "orders", "User:eve")

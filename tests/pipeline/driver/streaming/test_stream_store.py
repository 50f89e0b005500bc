"""The record of a query in the store, under writes whose answers are lost."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from holdfast.client.loop_thread import run
from holdfast.contracts.store import Store
from holdfast.pipeline.driver.streaming.stream_store import StreamStore
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import FencedError, UnavailableError
from holdfast.vocabulary.random import SystemRandom


@pytest.fixture
def store() -> Iterator[Store]:
    opening = open_store("memory:", clock=RealClock(), random=SystemRandom())
    yield run(opening.__aenter__())
    run(opening.__aexit__(None, None, None))


def owner(store: Store, epoch: int) -> StreamStore:
    return StreamStore(store, "p-1", epoch, clock=RealClock(), random=SystemRandom(), timeout_ms=30_000)


def test_an_owner_whose_own_write_came_late_may_claim_again_and_one_that_has_a_successor_may_not(store: Store) -> None:
    first, again = owner(store, 3), owner(store, 3)
    first.claim()
    again.claim()
    first_try = first.record
    with pytest.raises(UnavailableError, match="came late"):
        first.update(lambda record: replace(record, folder=3))
    assert first.record == first_try
    first.claim()
    assert first.update(lambda record: replace(record, folder=3)).folder == 3
    owner(store, 4).claim()
    with pytest.raises(FencedError):
        first.update(lambda record: replace(record, folder=2))

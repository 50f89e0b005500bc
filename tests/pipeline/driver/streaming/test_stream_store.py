"""The record of a query in the store, under writes whose answers are lost."""

import json
import zlib
from collections.abc import Iterator

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.client.loop_thread import run
from holdfast.contracts.store import Entry, Put, Store
from holdfast.contracts.validation import StoreLimits
from holdfast.pipeline.driver.streaming import protocol
from holdfast.pipeline.driver.streaming.stream_record import BatchIntent
from holdfast.pipeline.driver.streaming.stream_store import StreamStore
from holdfast.registry.keys import stream_key
from holdfast.registry.streams import retained_offsets, without_retained
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import CorruptError, FencedError, UnavailableError
from holdfast.vocabulary.random import SeededRandom, SystemRandom


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


def test_a_query_over_ten_thousand_partitions_has_a_record_that_fits_into_a_commit(store: Store) -> None:
    draw = SeededRandom(1)
    numbers = [str(number) for number in range(10_000)]

    def at() -> dict[str, int]:
        return {number: 10**8 + int(draw.token(), 16) % 10**9 for number in numbers}

    def offsets() -> str:
        position = {"topics": {"clicks": {"id": "7" * 32, "offsets": at()}}, "name": "clicks"}
        return "v1\n{}\n" + json.dumps(position, separators=(",", ":"))

    first = owner(store, 1)
    first.claim()
    first.update(lambda record: protocol.started(record, ({"clicks": at()},), {"clicks": "7" * 32}))
    first.update(lambda record: protocol.finished(record, 0, offsets()))
    intent = BatchIntent(batch=1, epoch=1, revision=1, output_mode="append", offsets=offsets())
    begun = first.update(lambda record: protocol.begun(record, intent))
    again = owner(store, 2).claim()
    assert again == replace(begun, epoch=2)
    stored = run(store.get(stream_key("p-1")))
    assert stored is not None
    assert len(stored.value) < StoreLimits().bytes_max * 0.9
    assert [(each.partition, each.start) for each in retained_offsets(stored).retain] == [
        (each.partition, each.start) for each in begun.retain
    ]
    assert len(begun.retain) == 10_000
    assert retained_offsets(Entry(stored.key, without_retained(stored), 1)).retain == ()


def test_a_record_that_is_cut_off_is_refused(store: Store) -> None:
    run(store.commit(apply=[Put(stream_key("p-1"), msgspec.json.encode({"zlib": zlib.compress(b"{}" * 1000)[:-1]}))]))
    with pytest.raises(CorruptError, match="cut off"):
        owner(store, 1).claim()

"""Recent messages are kept within a budget, and others are picked out of the log."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.heaps import HeapWorld

from holdfast.heap.model import NewMessage, StoredMessage
from holdfast.heap.payloads import PayloadCache
from holdfast.heap.records import Enqueue
from holdfast.heap.settings import HeapSettings
from holdfast.log.batches import PlainRecord, decode_chosen, encode
from holdfast.log.errors import OffsetOutOfRangeError
from holdfast.log.reader import FetchedBatches
from holdfast.vocabulary.errors import UnavailableError

ROOM = 10_000  # for about twelve messages
ANN, BOB = 1, 2


def stored(count: int) -> list[StoredMessage]:
    return [StoredMessage(Enqueue(0, b"x" * 100), 1_000) for _ in range(count)]


def test_what_was_put_first_goes_first() -> None:
    cache = PayloadCache(ROOM)
    for first in range(0, 40, 4):
        cache.put(ANN, range(first, first + 4), stored(4))
    assert list(cache.of(ANN)) == list(range(28, 40))


def test_what_is_gone_makes_room_for_others() -> None:
    cache = PayloadCache(ROOM)
    cache.put(ANN, range(4), stored(4))
    cache.put(BOB, range(8), stored(8))
    cache.drop(BOB, (5, 6, 7, 99))
    cache.put(ANN, [8, 10, 12], stored(3))
    assert (list(cache.of(ANN)), list(cache.of(BOB)), len(cache)) == ([0, 1, 2, 3, 8, 10, 12], [0, 1, 2, 3, 4], 12)


def test_nothing_of_an_owner_is_left_when_it_ends() -> None:
    cache = PayloadCache(ROOM)
    cache.put(ANN, range(3), stored(3))
    cache.drop_owner(ANN)
    assert len(cache) == 0 == cache._bytes
    cache.put(BOB, range(12), stored(12))
    assert len(cache) == 12, "the room is BOB's now"


def test_messages_that_come_and_go_leave_nothing_behind() -> None:
    cache = PayloadCache(ROOM)
    for offset in range(5_000):
        cache.put(ANN, (offset,), stored(1))
        cache.drop(ANN, (offset,))
    assert len(cache._runs) < 2_000
    assert cache._bytes == 0


def test_chosen_records_are_found_in_a_compressed_batch() -> None:
    records: list[PlainRecord] = [(at, 1_000, b"k%d" % at, b"v" * at, ()) for at in range(50)]
    batch = encode(records, compression="lz4")
    assert decode_chosen(batch, [3, 4, 49]) == [records[3], records[4], records[49]]
    assert decode_chosen(batch, [50, 60]) == []


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[HeapWorld]:
    made = HeapWorld(tmp_path)
    yield made
    await made.end()


async def test_messages_that_are_not_kept_are_popped_in_their_order(world: HeapWorld) -> None:
    node = await world.node()
    heaps = await world.heap(node)
    for first in range(0, 60, 20):
        messages = [NewMessage(payload=b"%d" % at, priority=at * 37 % 60) for at in range(first, first + 20)]
        await heaps.enqueue_batch("jobs", messages)
    view = world.view(node)
    view._reader._cache.drop_owner(view._reader._owner)
    popped = await heaps.pop("jobs", consumer="c", max_messages=45)
    expected = sorted(range(60), key=lambda at: at * 37 % 60)[:45]
    assert [int(each.payload) for each in popped] == expected
    assert len(view._reader._cache) < 20, "what lies between them is not decoded"


async def test_a_message_whose_copy_is_not_durable_yet_is_read_all_the_same(tmp_path: Path) -> None:
    world = HeapWorld(tmp_path)
    node = await world.node(heaps=HeapSettings(payload_cache_bytes_max=0, read_ahead_bytes_max=0))
    heaps = await world.heap(node)
    await heaps.enqueue_batch("jobs", [NewMessage(payload=b"%d" % at) for at in range(20)])
    view = world.view(node)
    offset = next(iter(view.state.ready.from_offset(0)))
    copying = asyncio.ensure_future(view.copy_forward([offset]))
    while offset not in view.state.copies:
        await asyncio.sleep(0)  # noqa: TID251 (no time passes)
    assert view.state.place(offset) >= view.log.high_watermark
    assert (await view._reader.read([offset]))[offset].enqueue.payload == b"0"
    await copying
    await world.end()


async def test_a_message_that_others_were_done_with_meanwhile_is_asked_for_again(
    world: HeapWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease ended while it was read, and the log goes on behind it: nothing is wrong with the request."""
    node = await world.node(heaps=HeapSettings(payload_cache_bytes_max=0, read_ahead_bytes_max=0))
    heaps = await world.heap(node)
    await heaps.enqueue_batch("jobs", [NewMessage(payload=b"x")])
    view = world.view(node)
    read = view.log.read

    async def gone(offset: int, **options: Any) -> FetchedBatches:
        raise OffsetOutOfRangeError("jobs-0", offset, 5, 9)

    monkeypatch.setattr(view.log, "read", gone)
    with pytest.raises(UnavailableError, match="gone meanwhile"):
        await heaps.pop("jobs", consumer="c")
    monkeypatch.setattr(view.log, "read", read)
    (popped,) = await heaps.pop("jobs", consumer="c")
    assert popped.payload == b"x", "its lease was given back"


async def test_a_pop_whose_messages_are_being_copied_waits_for_the_copies(world: HeapWorld) -> None:
    """They are not even in the log yet: copies are appended together."""
    node = await world.node(heaps=HeapSettings(payload_cache_bytes_max=0))
    heaps = await world.heap(node)
    await heaps.enqueue_batch("jobs", [NewMessage(payload=b"%d" % at, priority=-at) for at in range(200)])
    view = world.view(node)
    everything = list(view.state.ready.from_offset(0))
    read_first, copying = view._reader.read_first, list[asyncio.Future[Any]]()

    async def copied_first(offsets: Any, bytes_max: int, **options: Any) -> list[StoredMessage]:
        copying.append(asyncio.ensure_future(view.copy_forward(everything)))
        while everything[-1] not in view.state.copies:
            await asyncio.sleep(0)  # noqa: TID251 (no time passes)
        return await read_first(offsets, bytes_max, **options)

    view._reader.read_first = copied_first  # type: ignore[method-assign]
    popped = await heaps.pop("jobs", consumer="c", max_messages=3)
    assert [each.payload for each in popped] == [b"199", b"198", b"197"]
    await asyncio.gather(*copying)

"""A disk that is full: refused appends leave no trace, and appends go on when there is space again."""

import asyncio
import threading

import pytest
from tests.support.partitions import PartitionWorld, append, batch, records
from tests.support.waiting import async_until

from holdfast.log.batches import RecordBatchLimits, split_batches
from holdfast.log.errors import ProducerRefusedError
from holdfast.log.model import ACKS_LEADER
from holdfast.vocabulary.errors import UnavailableError


def sent(sequence: int) -> bytes:
    return batch(f"sequence {sequence}", producer=7, sequence=sequence)


async def test_a_burst_that_meets_a_full_disk_is_taken_back_whole(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition = await ann.open()
    await append(partition, sent(0))
    ann.disk.full = True
    answers = await asyncio.gather(*(append(partition, sent(n)) for n in range(1, 6)), return_exceptions=True)
    assert all(isinstance(answer, UnavailableError) for answer in answers)
    assert partition.next_offset == partition.high_watermark == 1
    assert partition.tail.end == 1
    ann.disk.full = False
    # Sent again, as a producer does, out of its order on purpose: the producer's state was taken back too.
    with pytest.raises(ProducerRefusedError, match="to be sent again"):
        await append(partition, sent(2))
    again = [await append(partition, sent(n)) for n in range(1, 6)]
    assert [(each.base_offset, each.duplicate) for each in again] == [(n, False) for n in range(1, 6)]
    await ann.end()
    reopened = await (await world.owner()).open()
    assert records(reopened.read_tail(0, bytes_max=1 << 20) or []) == [(n, f"sequence {n}") for n in range(6)]


async def test_what_was_synced_before_the_disk_was_full_stays(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition = await ann.open()
    ann.disk.gate = threading.Event()
    first = asyncio.ensure_future(append(partition, sent(0)))
    await async_until(lambda: ann.disk.waiting)
    behind = [asyncio.ensure_future(append(partition, sent(n))) for n in range(1, 4)]
    await async_until(lambda: partition.next_offset == 4)
    ann.disk.full = True
    ann.disk.gate.set()
    assert (await first).base_offset == 0
    answers = await asyncio.gather(*behind, return_exceptions=True)
    assert all(isinstance(answer, UnavailableError) for answer in answers)
    assert partition.next_offset == partition.high_watermark == 1
    await partition.wait_durable()


async def test_the_first_batches_of_a_new_producer_come_back_in_order_too(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition = await ann.open()
    ann.disk.full = True
    answers = await asyncio.gather(*(append(partition, sent(n)) for n in range(3)), return_exceptions=True)
    assert isinstance(answers[0], UnavailableError)  # the disk may have refused it before the others had their turn
    assert all(isinstance(answer, UnavailableError) or "to be sent again" in str(answer) for answer in answers[1:])
    ann.disk.full = False
    with pytest.raises(ProducerRefusedError, match="to be sent again"):
        await append(partition, sent(3))  # it was on its way when the others were refused
    assert [(await append(partition, sent(n))).base_offset for n in range(4)] == [0, 1, 2, 3]


async def test_who_sends_again_the_moment_it_is_refused_is_not_refused_with_the_burst_before(
    world: PartitionWorld,
) -> None:
    ann = await world.owner()
    partition = await ann.open()
    await append(partition, batch("a"))
    heard: list[str] = []

    def send(value: str, then: str = "") -> None:
        appended = partition.append_now(split_batches(batch(value), limits=RecordBatchLimits()))
        assert appended is not None

        def on_durable(error: BaseException | None) -> None:
            heard.append(f"{value} {'is there' if error is None else 'is not'}")
            if then:
                ann.disk.full = False
                send(then)

        partition.notify_durable(appended, on_durable, acks=ACKS_LEADER)

    ann.disk.full = True
    send("b", then="again")
    send("c")
    await async_until(lambda: len(heard) == 3)
    assert sorted(heard) == ["again is there", "b is not", "c is not"]
    assert records(partition.read_tail(0, bytes_max=1 << 20) or []) == [(0, "a"), (1, "again")]

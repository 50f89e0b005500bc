"""Appending a tail that was set aside: its records go to the end of their partition, in their order, under new offsets.

The one rule: each record is appended once, however often this is tried. The producer id and where the partition ended are noted
beside the tail before the first batch is sent; who tries again counts in the log itself what arrived, and sends the rest under the
same sequences.
"""

from pathlib import Path
from typing import Final

from holdfast.client.producer import IdempotentProducer, SequencedBatch, TargetPartition, TopicRef, stamp_producer
from holdfast.log.batches import RecordBatch, patch
from holdfast.log.wal.set_aside import (
    APPENDED,
    KEPT,
    AppendPlan,
    SetAsideTail,
    read_tail,
    save_plan,
    settle_tail,
    settling_lock,
)
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError

_NO_EPOCH: Final = -1


async def append_tail(
    directory: Path,
    tail: SetAsideTail,
    topic: TopicRef,
    producer: IdempotentProducer,
    *,
    clock: Clock,
    timeout_ms: int = 30_000,
) -> SetAsideTail:
    """Append what is not in the partition yet, and settle the tail. `UnavailableError`: try again, nothing is appended twice.

    `InvalidError`: it is not kept any more, or the topic is another one. `CorruptError`: the tail is damaged, or what was appended
    by an earlier attempt is not in the log any more.
    """
    lock = settling_lock(directory)
    lock.take()
    try:
        batches = check_tail(directory, tail, topic)
        target = TargetPartition(topic, tail.partition)
        if tail.plan is None:
            ends = await producer.end_offsets(topic, [tail.partition])  # also checks the topic's id
            producer_id, producer_epoch = await producer.init_producer_id()
            plan = AppendPlan(producer_id=producer_id, producer_epoch=producer_epoch, start_offset=ends[tail.partition])
            tail = save_plan(directory, tail, plan)
            failpoints.reached("set-aside.planned")
        assert tail.plan is not None
        identity = (tail.plan.producer_id, tail.plan.producer_epoch)
        done = await producer.appended_records(target, start=tail.plan.start_offset, producer=identity, sequence=0)
        ordinal = 0
        for batch in batches:
            count = batch.header.count
            if ordinal >= done and count:
                sent = SequencedBatch(target, ordinal, count, _stamped(batch, identity, ordinal))
                await producer.send([sent], deadline_ms=clock.boot_ms() + timeout_ms)
                failpoints.reached("set-aside.batch-appended")
            ordinal += count
        return settle_tail(directory, tail, APPENDED, now_ms=clock.now_ms())
    finally:
        lock.release()


def check_tail(directory: Path, tail: SetAsideTail, topic: TopicRef) -> list[RecordBatch]:
    """The batches of a tail that may be appended to `topic`."""
    if tail.state != KEPT:
        raise InvalidError(f"state of tail {tail.name}", tail.state, f"{KEPT}: it is settled")
    if topic.id != tail.topic_id:
        raise InvalidError(f"id of topic {topic.name}", topic.id, f"{tail.topic_id}, whose records these are")
    batches = read_tail(directory, tail)
    for batch in batches:
        if batch.header.is_transactional or batch.header.is_control:
            raise InvalidError(
                f"batch at offset {batch.header.base_offset}",
                "transactional",
                "not transactional: its outcome is unknown",
            )
    return batches


def _stamped(batch: RecordBatch, producer: tuple[int, int], sequence: int) -> bytes:
    data = bytearray(batch.data)
    patch(data, base_offset=0, leader_epoch=_NO_EPOCH)
    return stamp_producer(data, producer, sequence)

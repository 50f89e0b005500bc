"""What may be committed, and what was fetched and not delivered. Without a broker."""

from holdfast.client.records.model import TopicPartition
from holdfast.client.records.progress import ConsumerProgress
from holdfast.client.records.record_buffer import RecordBuffer

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def test_a_record_is_committed_once_it_is_processed_and_not_before() -> None:
    progress = ConsumerProgress()
    progress.deliver(A, 4)
    assert progress.uncommitted() == {}
    progress.mark_processed()
    progress.deliver(A, 5)
    assert progress.uncommitted() == {A: 5}
    assert progress.position(A) == 6
    progress.commit({A: 5})
    assert progress.uncommitted() == {}


def test_what_was_delivered_and_lost_before_it_was_committed_is_told_once() -> None:
    progress = ConsumerProgress()
    progress.deliver(A, 4)
    progress.deliver(B, 1)
    progress.mark_processed()
    progress.commit({B: 2})
    progress.lose([A, B])
    assert progress.take_lost() == {A: 5}
    assert progress.take_lost() == {}
    assert progress.uncommitted() == {}


def test_after_a_seek_nothing_from_before_is_committed() -> None:
    progress = ConsumerProgress()
    progress.deliver(A, 9)
    progress.mark_processed()
    progress.move(A)
    assert progress.uncommitted() == {}
    assert progress.position(A) is None


def test_records_of_a_paused_partition_wait_and_those_of_a_lost_one_go() -> None:
    buffer = RecordBuffer()
    buffer.add([(A, 1), (B, 1), (A, 2)])
    buffer.pause([A])
    buffer.add([(A, 3)])
    assert buffer.take(9) == [(B, 1)]
    buffer.resume([A])
    assert buffer.take(2) == [(A, 1), (A, 2)]
    buffer.put_back([(A, 1), (A, 2)])
    assert buffer.take(9) == [(A, 1), (A, 2), (A, 3)]
    buffer.add([(A, 4), (B, 2)])
    buffer.drop([A])
    assert buffer.take(9) == [(B, 2)]


def test_a_seek_clears_a_partition_which_stays_paused() -> None:
    buffer = RecordBuffer()
    buffer.add([(A, 1)])
    buffer.pause([A])
    buffer.clear(A)
    buffer.add([(A, 7)])
    assert len(buffer) == 0
    buffer.resume([A])
    assert buffer.take(9) == [(A, 7)]

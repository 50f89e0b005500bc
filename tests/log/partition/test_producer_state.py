"""Idempotent producers, judged without any I/O."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.partitions import batch

from holdfast.log.batches import BatchHeader, parse_header
from holdfast.log.batches.header import CONTROL, TRANSACTIONAL
from holdfast.log.errors import ProducerRefusal, ProducerRefusedError
from holdfast.log.partition.producer_state import MISSED_MAX, MISSED_MS, ProducerStates


def header(sequence: int, *, count: int = 1, producer: int = 7, epoch: int = 0) -> BatchHeader:
    return parse_header(batch(*"x" * count, producer=producer, epoch=epoch, sequence=sequence))


def appended(*sequences: int) -> ProducerStates:
    producers = ProducerStates()
    for offset, sequence in enumerate(sequences):
        assert producers.validate(header(sequence)) is None
        producers.append(header(sequence), offset, 1_000)
    return producers


def refused(producers: ProducerStates, given: BatchHeader) -> ProducerRefusal:
    with pytest.raises(ProducerRefusedError) as error:
        producers.validate(given)
    return error.value.refusal


def test_each_of_the_last_five_batches_is_known_again() -> None:
    producers = appended(0, 1, 2, 3, 4)
    assert [producers.validate(header(sequence)) for sequence in range(5)] == [0, 1, 2, 3, 4]


def test_the_sixth_oldest_is_a_duplicate_whose_place_is_forgotten() -> None:
    assert refused(appended(0, 1, 2, 3, 4, 5), header(0)) is ProducerRefusal.DUPLICATE


def test_a_batch_that_skips_ahead_is_out_of_order() -> None:
    assert refused(appended(0, 1), header(3)) is ProducerRefusal.OUT_OF_ORDER


def test_a_batch_of_which_only_a_part_has_come_is_not_called_a_duplicate_for_that_would_lose_the_rest() -> None:
    assert refused(appended(0, 1), header(1, count=2)) is ProducerRefusal.OUT_OF_ORDER
    assert refused(appended(0, 1, 2, 3, 4, 5), header(0, count=9)) is ProducerRefusal.OUT_OF_ORDER


def test_records_that_have_come_in_other_batches_are_duplicates() -> None:
    assert refused(appended(0, 1, 2), header(1, count=2)) is ProducerRefusal.DUPLICATE


def test_what_came_before_the_first_batch_we_know_of_may_never_have_come() -> None:
    producers = ProducerStates()
    producers.append(header(10), 0, 1_000)
    assert refused(producers, header(9)) is ProducerRefusal.OUT_OF_ORDER
    for sequence in range(11, 15):
        producers.append(header(sequence), sequence, 1_000)
    assert refused(producers, header(9)) is ProducerRefusal.DUPLICATE, "five came after it: nobody waits for it"


def test_sequences_wrap_to_zero() -> None:
    producers = appended(2**31 - 1)
    assert producers.validate(header(0)) is None
    assert refused(producers, header(1)) is ProducerRefusal.OUT_OF_ORDER


def test_a_batch_may_span_the_wrap() -> None:
    producers = ProducerStates()
    producers.append(header(2**31 - 1, count=3), 0, 1_000)
    assert producers.validate(header(2**31 - 1, count=3)) == 0
    assert producers.validate(header(2)) is None


def test_a_new_epoch_starts_over_at_zero() -> None:
    producers = appended(0, 1)
    assert refused(producers, header(2, epoch=1)) is ProducerRefusal.OUT_OF_ORDER
    assert producers.validate(header(0, epoch=1)) is None
    producers.append(header(0, epoch=1), 2, 1_000)
    assert refused(producers, header(2)) is ProducerRefusal.OLD_EPOCH


def test_an_unknown_producer_may_start_anywhere() -> None:
    assert ProducerStates().validate(header(41)) is None


def marker(*, epoch: int = 0) -> BatchHeader:
    return header(-1, epoch=epoch)._replace(attributes=TRANSACTIONAL | CONTROL)


def test_a_marker_leaves_the_sequence_where_it_is() -> None:
    producers = appended(0, 1)
    assert producers.validate(marker()) is None
    producers.append(marker(), 2, 1_000)
    assert producers.validate(header(1)) == 1
    assert producers.validate(header(2)) is None
    assert refused(producers, header(3)) is ProducerRefusal.OUT_OF_ORDER


def test_a_marker_of_an_older_epoch_is_refused_and_one_of_a_newer_begins_it() -> None:
    producers = appended(0, 1)
    producers.append(marker(epoch=2), 2, 1_000)
    assert refused(producers, marker(epoch=1)) is ProducerRefusal.OLD_EPOCH
    assert refused(producers, header(2)) is ProducerRefusal.OLD_EPOCH
    assert producers.validate(header(0, epoch=2)) is None


def test_a_marker_of_an_unknown_producer_makes_it_known_without_a_sequence() -> None:
    producers = ProducerStates()
    producers.append(marker(epoch=3), 0, 1_000)
    (known,) = producers.snapshot(1)
    assert (known.producer_epoch, known.batches) == (3, ())
    assert producers.validate(header(41, epoch=3)) is None


def test_a_marker_that_is_taken_back_takes_its_epoch_with_it() -> None:
    producers = appended(0, 1)
    producers.append(marker(epoch=2), 2, 1_000)
    producers.forget_from(2)
    assert producers.validate(header(2)) is None


def test_batches_without_a_producer_are_not_deduplicated() -> None:
    producers = ProducerStates()
    plain = parse_header(batch("x"))
    producers.append(plain, 0, 1_000)
    assert producers.validate(plain) is None
    assert len(producers) == 0


def test_what_is_taken_back_was_never_seen() -> None:
    producers = appended(0, 1, 2)
    producers.settle(1)
    producers.forget_from(1)
    assert producers.validate(header(1)) is None
    assert refused(producers, header(2)) is ProducerRefusal.OUT_OF_ORDER


def test_taking_five_back_brings_back_the_five_before_them() -> None:
    producers = appended(*range(10))
    producers.settle(5)
    producers.forget_from(5)
    assert [producers.validate(header(sequence)) for sequence in range(5)] == [0, 1, 2, 3, 4]
    assert refused(producers, header(6)) is ProducerRefusal.OUT_OF_ORDER


def test_taking_a_new_epoch_back_brings_back_the_old_one() -> None:
    producers = appended(0, 1)
    producers.append(header(0, epoch=1), 2, 1_000)
    producers.forget_from(2)
    assert producers.validate(header(1)) == 1
    assert producers.validate(header(2)) is None


def test_a_snapshot_shows_the_producers_as_they_were_at_its_offset() -> None:
    producers = appended(0, 1, 2, 3, 4)
    producers.settle(5)
    for offset in (5, 6, 7):
        producers.append(header(offset), offset, 2_000)
    producers.append(header(0, epoch=1), 8, 2_000)
    (then,) = producers.snapshot(5)
    assert (then.producer_epoch, then.last_timestamp_ms) == (0, 1_000)
    assert [each.first_seq for each in then.batches] == [0, 1, 2, 3, 4]
    assert producers.snapshot(9)[0].producer_epoch == 1


def test_a_snapshot_is_enough_to_go_on_from() -> None:
    producers = ProducerStates(appended(0, 1).snapshot(2))
    assert producers.validate(header(1)) == 1
    assert producers.validate(header(2)) is None


def test_a_delta_has_who_changed_after_the_snapshot_was_taken_and_before_it_was_published() -> None:
    producers = ProducerStates()
    for producer in range(4):
        producers.append(header(0, producer=producer), producer, 1_000)
    snapshot = producers.section(4, delta=False)
    producers.append(header(1, producer=2), 4, 2_000)
    producers.append(header(0, producer=9), 5, 2_000)
    producers.rebase(4)
    assert [each.producer_id for each in snapshot().producers] == [0, 1, 2, 3]
    assert [each.producer_id for each in producers.section(6, delta=True)().producers] == [2, 9]
    then = producers.section(5, delta=True)()  # the last one is not durable yet, and may have been forgotten before
    assert ([each.producer_id for each in then.producers], then.gone) == ([2], (9,))
    assert then.onto(snapshot().producers) == producers.snapshot(5)


def test_an_append_that_is_undone_is_named_in_the_next_delta_as_it_was_before() -> None:
    producers = appended(0, 1)
    producers.rebase(2)
    before = producers.snapshot(2)
    producers.append(header(2), 2, 2_000)
    producers.forget_from(2)
    assert producers.section(2, delta=True)().onto(before) == before


def test_silent_producers_are_forgotten_and_so_are_the_most_silent_of_too_many() -> None:
    producers = ProducerStates(count_max=3)
    for producer in range(5):
        producers.append(header(0, producer=producer), producer, 1_000 * producer)
    producers.append(header(1, producer=2), 5, 5_000)
    assert [each.producer_id for each in producers.snapshot(10)] == [2, 3, 4]
    assert producers.expire(6_500, expiry_ms=3_000, below_offset=6) == (1, 2)
    assert [each.producer_id for each in producers.snapshot(10)] == [2, 4]
    assert producers.expire(6_500, expiry_ms=3_000, below_offset=6) == (0, 0)
    assert len(ProducerStates(producers.snapshot(10), count_max=1)) == 1


def test_the_second_batch_of_an_unknown_producer_does_not_overtake_the_first_that_was_not_taken() -> None:
    producers = ProducerStates()
    producers.record_missed(header(0), 1_000)
    producers.record_missed(header(2), 1_000)
    with pytest.raises(ProducerRefusedError, match="to be sent again"):
        producers.validate(header(1), 1_500)
    assert producers.validate(header(0), 1_500) is None
    producers.append(header(0), 0, 1_500)
    assert producers.validate(header(1), 1_500) is None


def test_a_batch_that_was_not_taken_is_not_waited_for_for_ever() -> None:
    producers = ProducerStates()
    producers.record_missed(header(0), 1_000)
    assert producers.validate(header(1), 1_000 + MISSED_MS) is None


def test_the_next_batch_of_a_known_producer_is_sent_again_with_the_one_that_was_refused() -> None:
    producers = appended(0, 1)
    producers.record_missed(header(2), 1_000)
    assert refused(producers, header(3)) is ProducerRefusal.TOO_SOON
    assert producers.validate(header(1)) is not None  # one that is here is known all the same
    assert producers.validate(header(2)) is None
    producers.append(header(2), 2, 1_000)
    assert producers.validate(header(3)) is None
    assert refused(producers, header(5)) is ProducerRefusal.OUT_OF_ORDER


def test_what_was_not_taken_concerns_neither_others_nor_a_later_epoch() -> None:
    producers = appended(0, 1)
    producers.record_missed(header(0, producer=8), 1_000)
    assert refused(producers, header(3)) is ProducerRefusal.OUT_OF_ORDER
    assert producers.validate(header(5, producer=9), 1_000) is None
    assert producers.validate(header(5, producer=8, epoch=1), 1_000) is None
    assert producers.validate(parse_header(batch("x")), 1_000) is None


def test_only_so_many_producers_are_waited_for() -> None:
    producers = ProducerStates()
    for producer in range(MISSED_MAX + 1):
        producers.record_missed(header(0, producer=producer), 1_000)
    assert producers.validate(header(1, producer=0), 1_000) is None
    with pytest.raises(ProducerRefusedError):
        producers.validate(header(1, producer=1), 1_000)


class Wire:
    """A client with five batches in flight, a network that repeats and reorders, and a log that may forget its producers."""

    def __init__(self, draw: st.DataObject) -> None:
        self.draw, self.producers = draw, ProducerStates()
        self.log: list[int] = []  # the sequence at each offset
        self.forgot = False
        self.next_sequence = draw.draw(st.sampled_from([0, 2**31 - 4]))
        self.first = self.next_sequence
        self.outstanding: dict[int, int] = {}  # first sequence: number of records

    def send(self) -> None:
        if len(self.outstanding) < 5:
            count = self.draw.draw(st.integers(1, 3))
            self.outstanding[self.next_sequence] = count
            self.next_sequence = (self.next_sequence + count) % 2**31

    def arrive(self) -> None:
        """One of those that were not answered arrives, for the first time or again; its answer may be lost."""
        if not self.outstanding:
            return
        first = self.draw.draw(st.sampled_from(sorted(self.outstanding)))
        count = self.outstanding[first]
        sequences = [(first + at) % 2**31 for at in range(count)]
        try:
            offset = self.producers.validate(header(first, count=count))
        except ProducerRefusedError as error:
            if error.refusal is not ProducerRefusal.DUPLICATE:
                return  # the client tries again
            offset = -1
        if offset == -1:
            assert set(sequences) <= set(self.log), "a client takes it for success"
        else:
            if offset is None:
                assert self.forgot or not set(sequences) & set(self.log), "nothing is appended twice"
                offset = len(self.log)
                self.producers.append(header(first, count=count), offset, 1_000)
                self.log += sequences
            assert self.log[offset : offset + count] == sequences
        if self.draw.draw(st.booleans()):
            del self.outstanding[first]

    def forget(self) -> None:
        self.producers, self.forgot = ProducerStates(), True

    def take_over(self) -> None:
        self.producers.settle(len(self.log))
        self.producers = ProducerStates(self.producers.snapshot(len(self.log)))


@given(draw=st.data(), steps=st.lists(st.sampled_from(["send", "arrive", "arrive", "take_over"]), max_size=60))
def test_whatever_the_network_repeats_and_reorders_every_record_is_appended_once_and_in_order(
    draw: st.DataObject, steps: list[str]
) -> None:
    wire = Wire(draw)
    for step in steps:
        getattr(wire, step)()
    # The very first batch of a producer nobody knows may be any of those in flight; from there on there is no gap.
    assert all(after == (before + 1) % 2**31 for before, after in pairwise(wire.log))


@given(
    draw=st.data(), steps=st.lists(st.sampled_from(["send", "arrive", "arrive", "take_over", "forget"]), max_size=60)
)
def test_success_is_never_claimed_for_records_that_are_not_there_even_if_producers_are_forgotten(
    draw: st.DataObject, steps: list[str]
) -> None:
    wire = Wire(draw)
    for step in steps:
        getattr(wire, step)()

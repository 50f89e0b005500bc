"""The rules of records: each is kept by a history that is right, and broken by one that is not."""

from collections.abc import Sequence

from holdfast.sim.cluster.checker import check_cluster
from holdfast.sim.cluster.history import (
    ClusterEvent,
    OffsetCommitted,
    OffsetFetched,
    ReadingFinished,
    RecordsAcknowledged,
    RecordsRead,
    RecordsSent,
    RecordsServed,
    SequenceRefused,
)


def acknowledged(base: int, *values: str, idempotent: bool = True) -> RecordsAcknowledged:
    return RecordsAcknowledged(1, values[0].partition("-")[0], "t:0", base, values, idempotent)


def read(start: int, *records: tuple[int, str], end: int | None = None, reader: str = "r") -> RecordsRead:
    return RecordsRead(2, reader, "t:0", start, records[-1][0] + 1 if end is None else end, records)


def finished(reader: str = "r") -> ReadingFinished:
    return ReadingFinished(3, reader, "t:0")


def broken(*events: ClusterEvent) -> list[str]:
    return [violation.rule for violation in check_cluster(events)]


def all_of(*records: tuple[int, str]) -> Sequence[ClusterEvent]:
    return read(0, *records), finished()


def test_a_log_that_holds_what_was_acknowledged_keeps_every_rule() -> None:
    assert (
        broken(acknowledged(0, "p-0", "p-1"), acknowledged(3, "p-2"), *all_of((0, "p-0"), (1, "p-1"), (3, "p-2"))) == []
    )


def test_an_acknowledged_record_that_is_not_there_is_lost() -> None:
    assert "nothing-lost" in broken(acknowledged(0, "p-0"), acknowledged(1, "p-1"), *all_of((0, "p-0")))


def test_a_partition_that_was_never_read_to_its_end_is_not_judged() -> None:
    assert broken(acknowledged(0, "p-0"), acknowledged(1, "p-1"), read(0, (0, "p-0"))) == []


def test_an_offset_with_two_records_is_noticed() -> None:
    assert "one-record-per-offset" in broken(acknowledged(0, "p-0"), acknowledged(0, "q-0"))
    assert "one-record-per-offset" in broken(acknowledged(0, "p-0"), read(0, (0, "q-0")))


def test_a_reader_that_passes_a_record_is_noticed() -> None:
    events = (acknowledged(0, "p-0", "p-1"), read(0, (1, "p-1")), *all_of_other((0, "p-0"), (1, "p-1")))
    assert broken(*events) == ["read-in-order"]


def all_of_other(*records: tuple[int, str]) -> Sequence[ClusterEvent]:
    return read(0, *records, reader="final"), finished("final")


def test_a_reader_that_gets_an_offset_again_is_noticed() -> None:
    assert "read-in-order" in broken(read(0, (0, "p-0"), (1, "p-1")), read(1, (1, "p-1")))
    assert "read-in-order" in broken(read(0, (1, "p-1"), (0, "p-0"), end=2))


def test_a_record_that_was_read_and_is_gone_is_noticed() -> None:
    assert broken(read(0, (0, "p-0")), *all_of_other((1, "q-0"))) == ["read-stays"]


def test_a_record_of_an_idempotent_producer_is_there_once_and_in_order() -> None:
    assert broken(acknowledged(0, "p-0"), *all_of((0, "p-0"), (1, "p-0"))) == ["once-if-idempotent"]
    assert broken(acknowledged(1, "p-0"), *all_of((0, "p-1"), (1, "p-0"))) == ["once-if-idempotent"]
    assert broken(acknowledged(0, "p-0", idempotent=False), *all_of((0, "p-0"), (1, "p-0"))) == []


def test_a_refused_sequence_is_noticed() -> None:
    assert broken(SequenceRefused(1, "p", "t:0", "out of order")) == ["sequence-known"]


def test_a_high_watermark_grows_within_its_epoch() -> None:
    def served(epoch: int, high_watermark: int, *, asked_ms: float = 1) -> RecordsServed:
        return RecordsServed(1, asked_ms, "ann", "t:0", epoch, high_watermark)

    assert broken(served(1, 5), served(1, 5), served(2, 4)) == []
    assert broken(served(1, 5), served(1, 4)) == ["watermark-grows"]
    assert broken(served(1, 5), served(1, 4, asked_ms=0)) == []  # a slow read that began before


def test_an_epoch_is_served_by_one_process() -> None:
    assert broken(RecordsServed(1, 1, "ann.1", "t:0", 1, 0), RecordsServed(1, 1, "ann.1", "t:0", 1, 0)) == []
    assert broken(RecordsServed(1, 1, "ann.1", "t:0", 1, 0), RecordsServed(1, 1, "ann.2", "t:0", 1, 0)) == [
        "one-leader-per-epoch"
    ]


def test_epochs_do_not_change_and_do_not_fall_with_offsets() -> None:
    def written(*epochs: tuple[int, int], reader: str) -> RecordsRead:
        return RecordsRead(2, reader, "t:0", 0, len(epochs), (), epochs)

    assert broken(written((0, 1), (1, 2), reader="r"), finished()) == []
    assert broken(written((0, 2), (1, 1), reader="r"), finished()) == ["epochs-follow-offsets"]
    assert broken(written((0, 1), reader="r"), written((0, 2), reader="s")) == ["epochs-follow-offsets"]


def test_a_batch_sent_after_an_acknowledgement_comes_behind_it() -> None:
    def batch(value: str, base: int, sent_ms: float, acknowledged_ms: float) -> Sequence[ClusterEvent]:
        return (
            RecordsSent(sent_ms, value[0], "t:0", "ann", (value,)),
            RecordsAcknowledged(acknowledged_ms, value[0], "t:0", base, (value,), False),
        )

    log = all_of((0, "p-0"), (1, "q-0"))
    assert broken(*batch("p-0", 0, 1, 2), *batch("q-0", 1, 3, 4), *log) == []
    assert broken(*batch("q-0", 1, 1, 3), *batch("p-0", 0, 2, 4), *log) == []  # at the same time: any order
    assert broken(*batch("q-0", 1, 1, 2), *batch("p-0", 0, 3, 4), *log) == ["later-is-higher"]


def test_a_group_is_told_no_less_than_it_committed_before_it_asked() -> None:
    committed = (OffsetCommitted(10, "g", "t:0", 4), OffsetCommitted(20, "g", "t:0", 5))
    assert broken(*committed, OffsetFetched(30, 25, "g", "t:0", 5)) == []
    assert broken(*committed, OffsetFetched(30, 15, "g", "t:0", 4)) == []
    assert broken(*committed, OffsetFetched(30, 25, "g", "t:0", 4)) == ["group-offset-stays"]

"""Each row of the table "dies or sleeps": what the next owner finds in the record, and what it does."""

import json

import msgspec
import pytest

from holdfast.pipeline.driver.streaming.protocol import (
    Blocked,
    Compute,
    RunState,
    WriteBegun,
    begun,
    claimed,
    committed,
    decide_batch,
    epoch_of_piece,
    files_to_copy,
    finished,
    is_operator_metadata,
    started,
    take_over,
)
from holdfast.pipeline.driver.streaming.stream_record import (
    BatchIntent,
    Piece,
    StreamRecord,
    TopicRange,
    decode_record,
    encode_record,
    source_ranges,
)
from holdfast.registry.streams import RetainedOffset
from holdfast.vocabulary.errors import CorruptError, FencedError

PIECES = (Piece(rows=2, hash="1:ab", body=b"\x00arrow"), Piece(rows=9, hash="1:cd", key="streams/p/1/1/4/x.arrow"))


def offsets(*ends: int, topic: str = "orders", id_: str = "T1", watermark: int = 0) -> str:
    position = {"version": 1, "topics": {topic: {"id": id_, "offsets": {str(n): at for n, at in enumerate(ends)}}}}
    return "v1\n" + json.dumps({"batchWatermarkMs": watermark}) + "\n" + json.dumps(position)


def intent(batch: int, text: str, *, epoch: int = 1) -> BatchIntent:
    return BatchIntent(batch=batch, epoch=epoch, revision=1, output_mode="append", offsets=text, pieces=PIECES)


def at_batch(batch: int, *, epoch: int = 1) -> StreamRecord:
    """Batches up to this one are done."""
    record = started(StreamRecord(epoch=epoch, folder=epoch), ({"orders": {"0": 0}},), {"orders": "T1"})
    for number in range(batch + 1):
        text = offsets(10 * (number + 1))
        record = finished(begun(record, intent(number, text)), number, text)
    return record


def test_who_dies_before_the_offsets_of_a_batch_are_written_leaves_nothing() -> None:
    taken = take_over(claimed(at_batch(3), "p:1", 2))
    assert taken.copy_from == 1
    assert taken.write == {"offsets/3": offsets(40)}
    assert decide_batch(taken.record, 4, offsets(55)) == Compute()


def test_who_dies_before_the_intent_leaves_a_plan_that_is_not_taken() -> None:
    assert files_to_copy(["offsets/3", "offsets/4", "commits/3"], at_batch(3).done_batch) == ["offsets/3", "commits/3"]
    assert decide_batch(at_batch(3), 4, offsets(47)) == Compute(), "either plan is good: nobody inserted"


def test_who_dies_after_the_intent_has_exactly_its_pieces_written_by_the_next() -> None:
    mine = intent(4, offsets(50))
    taken = take_over(claimed(begun(at_batch(3), mine), "p:1", 2))
    assert taken.write == {"offsets/3": offsets(40), "offsets/4": offsets(50)}
    assert decide_batch(taken.record, 4, offsets(50)) == WriteBegun(mine)
    assert mine.pieces == PIECES


def test_a_begun_batch_with_other_offsets_blocks() -> None:
    record = begun(at_batch(3), intent(4, offsets(50)))
    for other in (offsets(51), offsets(50, watermark=7)):
        assert isinstance(decide_batch(record, 4, other), Blocked)
    assert isinstance(decide_batch(record, 5, offsets(60)), Blocked)


def test_who_dies_after_done_and_before_spark_commits_has_its_state_run_alone() -> None:
    record = take_over(claimed(at_batch(4), "p:1", 2)).record
    assert decide_batch(record, 4, offsets(50)) == RunState()
    assert isinstance(decide_batch(record, 4, offsets(49)), Blocked)
    assert decide_batch(record, 3, offsets(40)) == RunState()


def test_a_batch_that_follows_no_done_one_blocks() -> None:
    assert isinstance(decide_batch(at_batch(3), 6, offsets(99)), Blocked)
    assert decide_batch(StreamRecord(epoch=1), 0, offsets(3)) == Compute()
    assert isinstance(decide_batch(StreamRecord(epoch=1), 1, offsets(3)), Blocked)


def test_a_sleeper_whose_epoch_is_over_cannot_claim_the_record_again() -> None:
    with pytest.raises(FencedError):
        claimed(claimed(at_batch(3), "p:1", 2), "p:1", 1)


def test_what_a_batch_has_read_begins_where_the_last_ended_also_in_partitions_that_are_new() -> None:
    starts = {"0": 3, "1": 4}
    assert source_ranges("", offsets(10, 4), "o", "orders", starts) == [[TopicRange("orders", 0, 3, 10)]]
    assert source_ranges(offsets(10, 4), offsets(10, 9, 2), "o", "orders", starts) == [
        [TopicRange("orders", 1, 4, 9), TopicRange("orders", 2, 0, 2)]
    ]


def test_every_place_of_a_source_says_what_was_read_there_and_those_of_others_do_not() -> None:
    def lines(*positions: str) -> str:
        return "\n".join(offsets(7, topic="payments").splitlines() + list(positions))

    def at(end: int, name: str) -> str:
        return offsets(end).splitlines()[2].replace('"topics"', f'"name": "{name}", "topics"')

    before = lines(at(9, "all"), "-", at(5, "new"))
    found = source_ranges(before, lines(at(90, "all"), at(10, "new"), at(8, "new")), "new", "orders", {"0": 1})
    assert found == [[TopicRange("orders", 0, 1, 10)], [TopicRange("orders", 0, 5, 8)]]


def test_of_positions_that_an_earlier_build_wrote_every_one_of_the_topic_counts() -> None:
    joined = "\n".join([offsets(10), offsets(6).splitlines()[2]])
    assert source_ranges(offsets(4), joined, "new", "orders", {"0": 1}) == [
        [TopicRange("orders", 0, 4, 10)],
        [TopicRange("orders", 0, 1, 6)],
    ]


def test_a_record_without_dead_letters_of_an_earlier_build_is_read() -> None:
    record = begun(at_batch(3), intent(4, offsets(50)))
    text = encode_record(record).replace(b',"refused":[]', b"")
    assert b"refused" not in text
    assert decode_record("k", text) == record


def test_an_owner_that_starts_again_under_its_epoch_keeps_its_folder() -> None:
    taken = take_over(claimed(at_batch(3, epoch=5), "p:1", 5))
    assert (taken.copy_from, taken.write, taken.record.folder) == (0, {}, 5)
    assert taken.is_filled


def test_an_owner_that_has_lost_its_folder_fills_it_from_what_it_has_stored() -> None:
    mine = intent(4, offsets(50))
    taken = take_over(claimed(begun(at_batch(3, epoch=5), mine), "p:1", 5), has_folder=False)
    assert (taken.copy_from, taken.record.folder, taken.is_filled) == (5, 5, False)
    assert taken.write["offsets/4"] == offsets(50)


def test_a_first_owner_starts_with_an_empty_folder_of_its_own() -> None:
    taken = take_over(claimed(None, "p:1", 7))
    assert (taken.copy_from, taken.write, taken.record.folder) == (0, {}, 7)


def test_state_of_attempts_is_not_copied_before_a_first_batch_is_done() -> None:
    fresh = take_over(claimed(None, "p:1", 1)).record
    assert take_over(claimed(fresh, "p:1", 2)).copy_from == 0
    first = begun(fresh, intent(0, offsets(5)))
    taken = take_over(claimed(first, "p:1", 2))
    assert (taken.copy_from, taken.write) == (0, {"offsets/0": offsets(5)})


def test_what_a_sleeper_went_on_to_write_in_its_folder_is_not_copied() -> None:
    names = [
        "metadata",
        ".metadata.crc",
        "offsets/3",
        "offsets/.3.crc",
        "offsets/4",
        "offsets/.5.x.tmp",
        "commits/3",
        "commits/4",
        "state/0/_metadata/metadata",
        "state/0/0/_metadata/schema",
        "state/0/0/4_01014fed-40d4-4c4c-8b08-077ed8ae5b87.zip",
        "state/0/0/4_01014fed-40d4-4c4c-8b08-077ed8ae5b87.zip.crc",
        "state/0/0/5_9ede04c2-2abe-45ab-bb35-ec6e127d424b.zip",
        "state/0/0/5_9ede04c2-2abe-45ab-bb35-ec6e127d424b.zip.crc",
        "state/0/0/.4_01014fed.zip.crc",
        "state/0/0/SSTs/000008-de8b6a13-11b1-4b35-8401-deb9b05c929d.sst",
        "state/0/0/4_01014fed_9ede04c2.changelog",
        "state/0/0/5_01014fed_9ede04c2.changelog",
    ]
    assert files_to_copy(names, 3) == [
        "offsets/3",
        "commits/3",
        "state/0/_metadata/metadata",
        "state/0/0/_metadata/schema",
        "state/0/0/4_01014fed-40d4-4c4c-8b08-077ed8ae5b87.zip",
        "state/0/0/4_01014fed-40d4-4c4c-8b08-077ed8ae5b87.zip.crc",
        "state/0/0/SSTs/000008-de8b6a13-11b1-4b35-8401-deb9b05c929d.sst",
        "state/0/0/4_01014fed_9ede04c2.changelog",
    ]


def test_what_an_operators_state_is_names_files_by_their_whole_path() -> None:
    assert is_operator_metadata("state/0/_metadata/v2/0")
    assert is_operator_metadata("state/12/_metadata/metadata")
    assert not is_operator_metadata("state/0/0/_metadata/schema")
    assert not is_operator_metadata("metadata")
    assert files_to_copy(["state/0/_metadata/v2/0", "state/0/_metadata/v2/0.crc"], 3) == ["state/0/_metadata/v2/0"]


def test_only_pieces_of_older_epochs_are_leftovers() -> None:
    prefix = "c1/streams/p/1/pieces/"
    assert epoch_of_piece(f"{prefix}12/4/x.arrow", prefix) == 12
    assert epoch_of_piece("c1/streams/p/1/other", prefix) > 1 << 60


def test_retention_keeps_what_may_be_read_again() -> None:
    fresh = started(StreamRecord(epoch=1), ({"orders": {"0": 5}}, {"orders": {"0": 3, "1": 8}}), {"orders": "T1"})
    first = (RetainedOffset("orders", 0, 3), RetainedOffset("orders", 1, 8))
    assert fresh.retain == first
    text = offsets(10, 20)
    assert begun(fresh, intent(0, text)).retain == first
    done = finished(begun(fresh, intent(0, text)), 0, text)
    assert done.retain == first, "Spark may have to run it again"
    after = begun(done, intent(1, offsets(15, 25)))
    assert after.retain == (RetainedOffset("orders", 0, 10), RetainedOffset("orders", 1, 20))
    assert committed(after) == after, "begun: kept until it is done"
    assert committed(done).retain == ()


def test_a_recreated_topic_blocks() -> None:
    decided = decide_batch(at_batch(3), 4, offsets(50, id_="T2"))
    assert isinstance(decided, Blocked)
    assert "recreated" in decided.reason


def test_a_record_survives_its_encoding() -> None:
    record = begun(at_batch(3), intent(4, offsets(50)))
    assert decode_record("k", encode_record(record)) == record
    assert msgspec.json.decode(encode_record(record))["retain"][0] == {"topic": "orders", "partition": 0, "start": 40}
    with pytest.raises(CorruptError):
        decode_record("k", b'{"epoch": "one"}')

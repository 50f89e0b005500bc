"""Segments written by this release are read by every later one; the format's page is enough to read them."""

import re
from pathlib import Path
from typing import Any

from tests.support.segments import NOW_MS, body

from holdfast.log.batches import Record, decode, encode
from holdfast.log.segments import (
    BuiltSegment,
    EpochStart,
    ProducerSection,
    ProducerSnapshot,
    SegmentMeta,
    SequenceRange,
    build_object,
    build_segment,
    decode_blocks,
    read_directory,
    read_footer,
    read_producers,
    read_tail,
    segment_meta,
)
from holdfast.log.segments.inspection import inspect_object

GOLDEN = Path(__file__).parent / "golden"
DOCUMENT = Path(__file__).parents[3] / "docs" / "formats" / "strm.md"

RECORDS = [
    Record(1000, NOW_MS, b"key", b"value", (("trace", b"1"), ("none", None))),
    Record(1001, NOW_MS + 5, None, None),
    Record(1003, NOW_MS - 5, b"", b"", ()),
    Record(1010, -1, b"k" * 30, b"v" * 300, ()),
]
PRODUCERS = (
    ProducerSnapshot(
        producer_id=4711,
        producer_epoch=2,
        last_timestamp_ms=NOW_MS,
        batches=(SequenceRange(2147483647, 1, 1000), SequenceRange(2, 2, 1003)),
        transaction_offset=1003,
        coordinator_epoch=6,
    ),
    ProducerSnapshot(producer_id=4712, producer_epoch=0, last_timestamp_ms=-1),
)


def golden_segment() -> BuiltSegment:
    batches = [
        encode(RECORDS[:3], base_offset=1000, leader_epoch=3, producer_id=4711, producer_epoch=2, base_sequence=0),
        encode(RECORDS[3:], base_offset=1010, leader_epoch=4),
    ]
    return build_segment(
        batches,
        topic_id="0123456789abcdef0123456789abcdef",
        partition=12,
        epochs=[(3, 900), (4, 1010)],
        producers=ProducerSection(producers=PRODUCERS),
        compression="none",
        block_bytes=256,
    )


def golden_shared() -> list[BuiltSegment]:
    """LZ4 may pack another way in another release, so this one is only read."""
    return [
        build_segment(
            [encode([Record(n, NOW_MS + n, b"k", b"partition %d " % number * 20)], base_offset=n) for n in range(10)],
            topic_id="topic",
            partition=number,
            block_bytes=700,
        )
        for number in range(3)
    ]


def records_in(segment: bytes) -> list[Record]:
    blocks = read_tail(segment)[1].blocks
    found = decode_blocks(segment[blocks[0].start : blocks[-1].end])
    return [record for batch in found for record in decode(batch)]


def test_the_golden_segment_is_read() -> None:
    segment = (GOLDEN / "v2-stored.strm").read_bytes()
    assert inspect_object(segment).ok
    assert records_in(segment) == RECORDS
    assert segment_meta(*read_tail(segment)) == SegmentMeta(
        topic_id="0123456789abcdef0123456789abcdef",
        partition=12,
        base_offset=1000,
        end_offset=1011,
        record_count=4,
        batch_count=2,
        min_timestamp_ms=NOW_MS,
        max_timestamp_ms=NOW_MS + 5,
        epochs=(EpochStart(3, 900), EpochStart(4, 1010)),
        bytes=len(segment),
    )
    footer = read_footer(segment)
    section = segment[footer.producers_at : footer.producers_at + footer.producers_bytes]
    assert read_producers(section, footer) == ProducerSection(producers=PRODUCERS)


def test_the_golden_segment_is_written_byte_for_byte() -> None:
    assert body(golden_segment()) == (GOLDEN / "v2-stored.strm").read_bytes()


def test_the_golden_shared_object_is_read() -> None:
    whole = (GOLDEN / "v2-shared.strm").read_bytes()
    report = inspect_object(whole)
    assert report.ok
    assert {block.codec for segment in report.segments for block in segment.blocks} == {"lz4"}
    for number, place in enumerate(read_directory(whole)):
        assert place[2:] == ("topic", number, 0, 10)
        found = records_in(whole[place.start : place.end])
        assert [record.value for record in found] == [b"partition %d " % number * 20] * 10
        assert [record.timestamp_ms for record in found] == [NOW_MS + n for n in range(10)]


def test_the_reader_in_the_formats_page_reads_the_golden_files() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    page: dict[str, Any] = {}
    exec(code, page)
    segment = (GOLDEN / "v2-stored.strm").read_bytes()
    found = list(page["read_segment"](segment))
    assert [base_offset for base_offset, _, _ in found] == [1000, 1010]
    assert [record for _, _, batch in found for record in decode(batch)] == RECORDS
    whole = (GOLDEN / "v2-shared.strm").read_bytes()
    for place in read_directory(whole):
        assert len(list(page["read_segment"](whole[place.start : place.end]))) == 10


def test_the_sizes_in_the_formats_page_are_those_of_the_code() -> None:
    from holdfast.log.segments.layout import BLOCK_BYTES, FOOTER_BYTES
    from holdfast.log.segments.settings import SegmentSettings

    text = DOCUMENT.read_text()
    assert f"header bytes, {BLOCK_BYTES}" in text
    assert f"footer bytes, {FOOTER_BYTES}" in text
    settings = SegmentSettings()
    assert f"{settings.block_bytes // 1024} KiB unless set otherwise" in text
    assert f"the last {settings.tail_bytes // 1024} KiB" in text


if __name__ == "__main__":  # writes the files, for a new version of the format only
    (GOLDEN / "v2-stored.strm").write_bytes(body(golden_segment()))
    (GOLDEN / "v2-shared.strm").write_bytes(b"".join(build_object(golden_shared()).parts))

"""Damage is found, wherever it is; nothing that can be read makes a parser do anything but answer or refuse."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.segments import a_batch, a_segment, body, some_batches

from holdfast.log.batches import Buffer
from holdfast.log.segments import (
    ProducerSection,
    ProducerSnapshot,
    SequenceRange,
    build_object,
    build_segment,
    decode_blocks,
    parse_header,
    read_directory,
    read_footer,
    read_producers,
    read_tail,
)
from holdfast.log.segments.blocks import encode_block, read_block, walk_blocks
from holdfast.log.segments.inspection import inspect_object
from holdfast.log.segments.layout import FOOTER_BYTES, pack_footer
from holdfast.log.segments.v1 import import_v1
from holdfast.vocabulary.errors import CorruptError, InvalidError

REFUSED = (CorruptError, InvalidError)
PRODUCER = ProducerSnapshot(
    producer_id=5, producer_epoch=1, last_timestamp_ms=9, batches=(SequenceRange(0, 2, 0), SequenceRange(3, 5, 3))
)


def whole(producers: ProducerSection = ProducerSection(producers=(PRODUCER,))) -> bytes:  # noqa: B008 - a frozen value
    batches = [*some_batches(5), a_batch(15, compression="zstd"), a_batch(20, compression="gzip")]
    built = build_segment(
        batches, topic_id="t1", partition=3, epochs=[(1, 0), (4, 6)], producers=producers, block_bytes=400
    )
    return body(built)


def read_all(data: Buffer) -> None:
    """As a reader would: tail, producers, then every block. The header is for who has nothing else."""
    parse_header(data)
    footer, index = read_tail(data)
    read_producers(data[footer.producers_at : footer.producers_at + footer.producers_bytes], footer)
    decode_blocks(data[index.blocks[0].start : index.blocks[-1].end])


DELTA = ProducerSection(producers=(PRODUCER,), since=2, gone=(7, 8))


@pytest.mark.slow
@pytest.mark.parametrize("producers", [ProducerSection(producers=(PRODUCER,)), DELTA], ids=["snapshot", "delta"])
def test_no_damaged_byte_goes_unseen(producers: ProducerSection) -> None:
    sound = whole(producers)
    read_all(sound)
    assert inspect_object(sound).ok
    for at in range(len(sound)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(sound)
            damaged[at] ^= flip
            with pytest.raises(REFUSED):
                read_all(damaged)
            try:
                assert not inspect_object(damaged).ok
            except InvalidError:
                assert at < 6  # no segment any more, or one of version 1


def test_damage_in_one_block_leaves_the_others_readable() -> None:
    sound = whole()
    index = read_tail(sound)[1]
    assert len(index.blocks) > 2
    damaged = bytearray(sound)
    damaged[index.blocks[1].start + 50] ^= 1
    (report,) = inspect_object(damaged).segments
    assert [check.what for check in report.checks if not check.ok] == ["whole segment", "block 1"]
    assert len(report.blocks) == len(index.blocks) - 1
    assert decode_blocks(damaged[index.blocks[2].start : index.blocks[2].end])
    with pytest.raises(CorruptError, match=f"block at byte {index.blocks[1].start}"):
        decode_blocks(damaged[index.blocks[0].start : index.blocks[-1].end], at=index.blocks[0].start)


def test_a_cut_segment_says_so_and_shows_the_blocks_that_are_left() -> None:
    sound = whole()
    blocks = read_tail(sound)[1].blocks
    for size in range(len(sound)):
        with pytest.raises(CorruptError):
            read_all(sound[:size])
    (report,) = inspect_object(sound[: blocks[2].start + 5]).segments
    assert len(report.blocks) == 2
    assert not report.ok


def test_a_segment_that_lost_its_beginning_says_so() -> None:
    sound = whole()
    (report,) = inspect_object(sound[10:]).segments
    assert {check.what for check in report.checks if not check.ok} == {"header", "footer"}


def test_damage_within_a_batch_is_found_by_the_batchs_own_checksum() -> None:
    batch = bytearray(a_batch(0))
    batch[-1] ^= 1  # before it was stored: the block's CRC is right
    (report,) = inspect_object(a_segment([batch])).segments
    assert [check.what for check in report.checks if not check.ok] == ["block 0"]


def test_a_newer_version_is_distinguished_from_damage() -> None:
    sound = bytearray(whole())
    footer = read_footer(sound)
    fields = bytearray(sound[-FOOTER_BYTES:-8])
    fields[-8:-6] = (3).to_bytes(2, "big")
    newer = bytes(fields) + crc32c(fields).to_bytes(4, "big") + b"STRM"
    with pytest.raises(InvalidError, match="newer release"):
        read_tail(bytes(sound[:-FOOTER_BYTES]) + newer)
    assert footer.major == 2
    with pytest.raises(InvalidError, match="import-v1"):
        read_footer(b"\0" * 44 + b"STRM" + b"\0" * 16)


def test_a_newer_minor_version_may_add_fields() -> None:
    sound = whole()
    footer = read_footer(sound)
    longer = footer._replace(segment_bytes=len(sound) + 12)
    fields = bytearray(pack_footer(longer)[:-8])
    fields[-6:-4] = (9).to_bytes(2, "big")
    fields[-4:] = (FOOTER_BYTES + 12).to_bytes(4, "big")
    fields = fields[:-8] + b"new fields .."[:12] + fields[-8:]
    newer = sound[:-FOOTER_BYTES] + bytes(fields) + crc32c(fields).to_bytes(4, "big") + b"STRM"
    found, index = read_tail(newer)
    assert (found.minor, found.footer_bytes) == (9, FOOTER_BYTES + 12)
    assert decode_blocks(newer[index.blocks[0].start : index.blocks[-1].end])
    assert inspect_object(newer).ok


def test_a_tail_that_is_too_short_says_what_it_takes() -> None:
    sound = whole()
    footer = read_footer(sound[-FOOTER_BYTES:])
    with pytest.raises(InvalidError, match=f"at least {footer.tail_bytes}"):
        read_tail(sound[-FOOTER_BYTES - 1 :])
    assert read_tail(sound[-footer.tail_bytes :]) is not None


PARSERS: list[Callable[[bytes], object]] = [
    parse_header,
    read_footer,
    read_tail,
    decode_blocks,
    read_directory,
    inspect_object,
    import_v1,
]


@pytest.mark.parametrize("parse", PARSERS)
@settings(deadline=None)
@given(data=st.binary(max_size=300), start=st.sampled_from((b"", b"STRM\0\2", b"STRB", b"STRM\0\1")))
def test_no_bytes_upset_a_parser(parse: Callable[[bytes], object], data: bytes, start: bytes) -> None:
    for tried in (start + data, start + data + b"STRM", start + data + b"STRD", start + data + b"STRM" + bytes(16)):
        with suppress(*REFUSED):
            parse(tried)


@settings(deadline=None)
@given(st.data())
def test_lies_with_right_checksums_are_refused_or_read(data: st.DataObject) -> None:
    """Somebody who computes CRCs can say anything; the parsers still only answer or refuse, within bounded memory."""
    sound = bytearray(whole())
    footer = read_footer(sound)
    index_at, footer_at = footer.index_at, len(sound) - FOOTER_BYTES
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(footer.producers_at, len(sound) - 9))
        sound[at] = data.draw(st.integers(0, 255))
    section_crc = {76: crc32c(sound[footer.producers_at : index_at]), 92: crc32c(sound[index_at:footer_at])}
    for at, crc in section_crc.items():
        sound[footer_at + at : footer_at + at + 4] = crc.to_bytes(4, "big")
    sound[-8:-4] = crc32c(sound[footer_at:-8]).to_bytes(4, "big")
    with suppress(*REFUSED):
        read_all(sound)
    inspect_object(sound)


@settings(deadline=None)
@given(st.data())
def test_blocks_that_lie_with_right_checksums_are_refused_or_read(data: st.DataObject) -> None:
    sound = whole()
    place = read_tail(sound)[1].blocks[0]
    block = bytearray(sound[place.start : place.end])
    for _ in range(data.draw(st.integers(1, 4))):
        block[data.draw(st.integers(0, len(block) - 1))] = data.draw(st.integers(0, 255))
    block[28:32] = crc32c(block[32:], crc32c(block[:28])).to_bytes(4, "big")
    for read in (decode_blocks, read_blocks):
        with suppress(*REFUSED):
            read(block)


def read_blocks(data: Buffer) -> list[Buffer]:
    return [read_block(block) for block in walk_blocks(data)]


def test_a_block_whose_batches_are_out_of_order_is_not_read_whole() -> None:
    header, payload, crc = encode_block(a_batch(9) + a_batch(0), at=0, batch_count=2, first_offset=9, pack=False)
    assert crc == crc32c(payload)
    with pytest.raises(CorruptError, match=r"segment block at byte 0.*invalid base offset 0: must be .* in order"):
        read_blocks(header + payload)


@pytest.mark.parametrize("announced", [(3, 9), (2, 8)])
def test_a_block_that_announces_other_batches_is_not_read_whole(announced: tuple[int, int]) -> None:
    count, first_offset = announced
    raw = a_batch(9) + a_batch(12)
    header, payload, _ = encode_block(raw, at=0, batch_count=count, first_offset=first_offset, pack=True)
    with pytest.raises(CorruptError, match="2 batches, not the"):
        read_blocks(header + bytes(payload))


@pytest.mark.slow
def test_a_shared_object_shows_which_segment_is_damaged() -> None:
    built = build_object([build_segment(some_batches(3), topic_id="t", partition=n) for n in range(3)])
    sound = b"".join(built.parts)
    assert inspect_object(sound).ok
    for at in range(len(sound)):
        damaged = bytearray(sound)
        damaged[at] ^= 0xFF
        try:
            report = inspect_object(damaged)
        except InvalidError:
            continue
        assert not report.ok
        if at < built.ranges[-1].end:
            wrong = [segment.start <= at < segment.end for segment in report.segments if not segment.ok]
            assert wrong == [True]

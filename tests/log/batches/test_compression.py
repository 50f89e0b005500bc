"""Every codec round-trips, reads what others write, and stops at the limit."""

import gzip
import threading

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from holdfast.log.batches.compression import CODECS, DecompressError, codec_number, compress, decompress
from holdfast.vocabulary.errors import InvalidError

MIB = 1 << 20
NUMBERS = range(1, 5)
TEXT = b"".join(b'{"user": %d}' % n for n in range(20_000))


@given(st.binary(max_size=2_000), st.sampled_from(range(5)))
def test_what_goes_in_comes_out_within_exactly_its_size(data: bytes, codec: int) -> None:
    packed = compress(codec, data)
    assert bytes(decompress(codec, packed, bytes_max=max(1, len(data)))) == data


@pytest.mark.parametrize("codec", NUMBERS)
def test_large_data_and_views_are_fine(codec: int) -> None:
    for data in (b"", TEXT, TEXT * 20, bytes(5 * MIB)):
        packed = compress(codec, memoryview(bytearray(data)))
        assert bytes(decompress(codec, memoryview(bytearray(packed)), bytes_max=8 * MIB)) == data


@pytest.mark.slow
@pytest.mark.parametrize("codec", NUMBERS)
def test_a_bomb_is_refused(codec: int) -> None:
    bomb = compress(codec, bytes(64 * MIB))
    for limit in (1, MIB, 64 * MIB - 1):
        with pytest.raises(DecompressError) as caught:
            decompress(codec, bomb, bytes_max=limit)
        assert caught.value.too_large
        assert caught.value.given == limit
    assert len(decompress(codec, bomb, bytes_max=64 * MIB)) == 64 * MIB


def test_a_zstd_bomb_that_does_not_announce_itself_is_refused() -> None:
    stream = zstandard.ZstdCompressor().compressobj()
    bomb = stream.compress(bytes(64 * MIB)) + stream.flush()
    assert zstandard.get_frame_parameters(bomb).content_size == zstandard.CONTENTSIZE_UNKNOWN
    with pytest.raises(DecompressError):
        decompress(4, bomb, bytes_max=MIB)
    assert len(decompress(4, bomb, bytes_max=64 * MIB)) == 64 * MIB


@pytest.mark.parametrize("codec", NUMBERS)
def test_a_cut_or_followed_stream_is_refused(codec: int) -> None:
    packed = compress(codec, TEXT)
    for broken in (
        packed[:-1],
        packed[: len(packed) // 2],
        packed[:3],
        b"",
        packed + b"\x00",
        packed + packed,
        b"nonsense" * 9,
    ):
        with pytest.raises(DecompressError):
            decompress(codec, broken, bytes_max=64 * MIB)


@pytest.mark.slow
def test_what_others_write_is_read() -> None:
    streams = {
        1: [gzip.compress(TEXT, 1), gzip.compress(TEXT, 9)],
        2: [bytes(cramjam.snappy.compress_raw(TEXT))],  # librdkafka's way; ours is Java's
        3: [
            lz4.frame.compress(TEXT, content_checksum=True, block_checksum=True),
            lz4.frame.compress(TEXT, block_linked=True, block_size=lz4.frame.BLOCKSIZE_MAX4MB, store_size=True),
        ],
        4: [
            zstandard.ZstdCompressor(level=19, write_checksum=True).compress(TEXT),
            zstandard.ZstdCompressor(write_content_size=False).compress(TEXT),
        ],
    }
    for codec, packs in streams.items():
        for packed in packs:
            assert bytes(decompress(codec, packed, bytes_max=len(TEXT))) == TEXT


def test_a_snappy_block_is_bounded_by_what_the_others_left() -> None:
    packed = compress(2, TEXT)  # several blocks
    with pytest.raises(DecompressError) as caught:
        decompress(2, packed, bytes_max=len(TEXT) - 1)
    assert caught.value.too_large
    for broken in (packed[:10], packed[:18], packed[:16] + b"\xff\xff\xff\xff" + packed[20:], packed[:16] + bytes(4)):
        with pytest.raises(DecompressError):
            decompress(2, broken, bytes_max=len(TEXT))


@pytest.mark.slow
def test_many_threads_use_the_codecs_at_once() -> None:
    failures: list[object] = []

    def work(codec: int) -> None:
        for n in range(20):
            data = TEXT[n * 100 :]
            if bytes(decompress(codec, compress(codec, data), bytes_max=MIB)) != data:
                failures.append((codec, n))

    threads = [threading.Thread(target=work, args=(codec,)) for codec in NUMBERS for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_an_unknown_codec_is_refused() -> None:
    assert [codec_number(name) for name in CODECS] == [0, 1, 2, 3, 4]
    with pytest.raises(InvalidError, match="one of none, gzip"):
        codec_number("brotli")
    with pytest.raises(InvalidError, match="codec"):
        compress(5, b"")
    with pytest.raises(InvalidError, match="codec"):
        decompress(5, b"", bytes_max=1)
    with pytest.raises(DecompressError):
        decompress(0, b"ab", bytes_max=1)

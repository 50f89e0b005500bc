"""ClickHouse's compressed blocks: checksums as the engine itself writes them, there and back, and damaged."""

import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import lz4.block
import pytest
import zstandard
from tests.support.clickhouse_http import send_query

from holdfast.clickhouse.embedded import cityhash
from holdfast.clickhouse.embedded.cityhash import city_hash_128, python_city_hash_128
from holdfast.clickhouse.embedded.compressed_blocks import compress_blocks, decompress_blocks
from holdfast.clickhouse.embedded.errors import QueryError
from holdfast.testing.clickhouse import ClickHouseServer


def test_checksums_are_those_the_engine_writes(clickhouse: ClickHouseServer, clickhouse_database: str) -> None:
    clickhouse.query(
        "CREATE TABLE t (n UInt64, s String) ENGINE = MergeTree ORDER BY n SETTINGS min_bytes_for_wide_part = 0",
        database=clickhouse_database,
    )
    clickhouse.query("SYSTEM STOP MERGES t", database=clickhouse_database)  # which write files, and remove them
    for rows in (1, 2, 3, 5, 8, 20, 100, 5_000, 200_000):
        clickhouse.query(
            f"INSERT INTO t SELECT number, toString(cityHash64(number)) FROM numbers({rows})",
            database=clickhouse_database,
        )
    uuid = clickhouse.query(
        "SELECT uuid FROM system.tables WHERE name = 't' AND database = currentDatabase()", database=clickhouse_database
    )
    parts = Path(clickhouse.data, "engine", "store", uuid.decode()[:3], uuid.decode().strip())
    checked = [_checked(file.read_bytes()) for file in parts.glob("*/*.bin")]
    assert len(checked) >= 18
    assert max(checked) > 3  # blocks in one file: the long path of the hash too


def _checked(file: bytes) -> int:
    starts = [0]
    while starts[-1] < len(file):
        (size,) = struct.unpack_from("<I", file, starts[-1] + 17)
        starts.append(starts[-1] + 16 + size)
    for begins, ends in pairwise(starts):
        block = file[begins + 16 : ends]
        for checksum in (city_hash_128(block), python_city_hash_128(block)):
            assert checksum == file[begins : begins + 16], f"a block of {ends - begins} bytes"
    return len(starts) - 1


def test_the_native_checksum_and_the_one_in_python_agree() -> None:
    pytest.importorskip("clickhouse_cityhash")
    assert cityhash._native is not None
    data = bytes(number * 7 % 251 for number in range(2_000))
    for size in (*range(300), 1_000, 1_023, 1_024, 1_025, 2_000):
        assert cityhash._native(data[:size]) == python_city_hash_128(data[:size]), f"{size} bytes"


def test_without_the_library_checksums_are_computed_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = city_hash_128(b"some rows")
    monkeypatch.setattr(cityhash, "_native", None)
    assert city_hash_128(b"some rows") == expected


@pytest.mark.parametrize("size", [0, 1, 3, 4, 7, 8, 15, 16, 17, 100, 143, 144, 145, 1000, 3_000_000])
def test_compressed_blocks_round_trip(size: int) -> None:
    plain = bytes(range(256)) * (size // 256 + 1)
    packed = b"".join(compress_blocks(iter([plain[:size]])))
    bits = iter(packed[at : at + 1000] for at in range(0, len(packed), 1000))
    assert b"".join(decompress_blocks(bits)) == plain[:size]


def _block(method: int, small: bytes, size: int) -> bytes:
    body = struct.pack("<BII", method, len(small) + 9, size) + small
    return city_hash_128(body) + body


def test_every_method_is_read() -> None:
    plain = b"some rows " * 100
    blocks = (
        _block(0x82, lz4.block.compress(plain, store_size=False), len(plain))
        + _block(0x90, zstandard.ZstdCompressor().compress(plain), len(plain))
        + _block(0x02, plain, len(plain))
    )
    assert b"".join(decompress_blocks(iter([blocks]))) == plain * 3


GOOD = _block(0x82, lz4.block.compress(b"x" * 50, store_size=False), 50)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (GOOD[:-1], "middle"),
        (GOOD[:10], "middle"),
        (b"\0" + GOOD[1:], "checksum"),
        (GOOD[:-1] + b"\xff", "checksum"),
        (_block(0x82, b"\xff" * 7, 50), "damaged"),
        (_block(0x90, b"garbage", 50), "damaged"),
        (_block(0x77, b"garbage", 7), "method 0x77"),
        (_block(0x02, b"short", 50), "instead of 50"),
        (b"\0" * 16 + struct.pack("<BII", 0x82, 5, 5), "block of 5 bytes"),
        (b"\0" * 16 + struct.pack("<BII", 0x82, 50, 1 << 31), "exceeds the limit"),
    ],
    ids=range(10),
)
def test_what_is_damaged_is_refused(wrong: bytes, says: str) -> None:
    with pytest.raises(QueryError, match=says):
        b"".join(decompress_blocks(iter([wrong])))


def test_requests_and_answers_may_be_blocks(clickhouse: ClickHouseServer, clickhouse_database: str) -> None:
    clickhouse.query("CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a", database=clickhouse_database)
    rows = b"".join(b"%d\n" % number for number in range(10_000))
    packed = b"".join(compress_blocks(iter([rows])))
    where: dict[str, Any] = {"database": clickhouse_database, "query": "INSERT INTO t FORMAT TSV", "decompress": "1"}
    assert send_query(clickhouse, packed, **where).status == 200
    assert send_query(clickhouse, b"\0" + packed[1:], **where).code == "271"
    where["http_native_compression_disable_checksumming_on_decompress"] = "1"
    assert send_query(clickhouse, b"\0" + packed[1:], **where).status == 200
    answer = send_query(
        clickhouse, b"SELECT * FROM t ORDER BY a LIMIT 5 BY a", database=clickhouse_database, compress="1"
    )
    lines = b"".join(decompress_blocks(iter([answer.body]))).splitlines()
    assert (len(lines), lines[:2], lines[-1]) == (20_000, [b"0", b"0"], b"9999")

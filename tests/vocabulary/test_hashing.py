"""Hashes, against published vectors."""

import pytest

from holdfast.vocabulary.hashing import fnv1a_64, java_hash, kafka_partition, murmur2, ring_hash


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("", 0xEFD01F60BA992926),
        ("agent-1:vn0", 0xEFDE67AD22A4D798),
        ("agent-1:vn149", 0xAC08D38502AE26C4),
        ("orders:0", 0x32BEA26AB73B199B),
    ],
)
def test_ring_hash_matches_the_published_vectors(label: str, expected: int) -> None:
    assert ring_hash(label) == expected


def test_fnv1a_of_nothing_is_its_offset_basis() -> None:
    assert fnv1a_64(b"") == 0xCBF29CE484222325
    assert fnv1a_64(b"a") == 0xAF63DC4C8601EC8C


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_matches_kafkas_own_vectors(key: bytes, signed: int) -> None:
    value = murmur2(key)
    assert (value - (1 << 32) if value >= 1 << 31 else value) == signed
    assert kafka_partition(key, 7) == (signed & 0x7FFFFFFF) % 7


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("account-0", -1827030896),
        ("Aa", 2112),
        ("BB", 2112),
        ("polygenelubricants", -(1 << 31)),
        ("\U0001f600", 1772899),
    ],
)
def test_java_hash_is_strings_hash_code(text: str, expected: int) -> None:
    assert java_hash(text) == expected

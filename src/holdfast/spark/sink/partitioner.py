"""Which partition a row goes to: its column `partition`, else the hash of its key as in Kafka's default partitioner, else any.

Keys are hashed by column: murmur2 over all rows at once, four bytes of each key at a time. `vocabulary.hashing` has murmur2 for one
key; a test compares the two.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from holdfast.vocabulary.errors import InvalidError

_M: Final = np.uint32(0x5BD1E995)
_SEED: Final = 0x9747B28C

NumpyArray = np.ndarray[Any, np.dtype[Any]]


def assign_partitions(
    keys: pa.Array | None, requested: pa.Array | None, *, partitions: int, spread: int, rows: int
) -> NumpyArray:
    """The partition of each row. Rows without key and partition share one, which `spread` selects."""
    if keys is None or keys.null_count == rows:
        by_key = np.full(rows, spread % partitions, dtype=np.int64)
    else:
        by_key = (murmur2_column(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64) % partitions
        if keys.null_count:
            by_key[keys.is_null().to_numpy(zero_copy_only=False)] = spread % partitions
    if requested is None or requested.null_count == rows:
        return by_key
    numbers = requested.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    given = requested.is_valid().to_numpy(zero_copy_only=False)
    wrong = given & ((numbers < 0) | (numbers >= partitions))
    if wrong.any():
        raise InvalidError("column partition", int(numbers[wrong.argmax()]), f"0 to {partitions - 1}")
    return np.where(given, numbers, by_key)


def murmur2_column(keys: pa.Array) -> NumpyArray:
    """Kafka's murmur2 of every key, as unsigned 32-bit numbers; undefined for a null."""
    data, starts, lengths = _binary_layout(keys)
    hashes = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    with np.errstate(over="ignore"):
        for at in range(0, int(lengths.max(initial=0)) - 3, 4):
            (rows,) = np.nonzero(lengths >= at + 4)
            word = _word(data, starts[rows] + at) * _M
            word = (word ^ (word >> np.uint32(24))) * _M
            hashes[rows] = (hashes[rows] * _M) ^ word
        hashes = _with_tail(hashes, data, starts, lengths)
        hashes = (hashes ^ (hashes >> np.uint32(13))) * _M
    return hashes ^ (hashes >> np.uint32(15))


def _with_tail(hashes: NumpyArray, data: NumpyArray, starts: NumpyArray, lengths: NumpyArray) -> NumpyArray:
    """The one to three bytes after the last whole word."""
    left = lengths % 4
    ends = starts + lengths - left
    tail = np.zeros(len(hashes), dtype=np.uint32)
    for byte in range(3):
        (rows,) = np.nonzero(left > byte)
        tail[rows] |= data[ends[rows] + byte].astype(np.uint32) << np.uint32(8 * byte)
    return np.where(left > 0, (hashes ^ tail) * _M, hashes)


def _word(data: NumpyArray, at: NumpyArray) -> NumpyArray:
    word = data[at].astype(np.uint32)
    for byte in (1, 2, 3):
        word |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word


def _binary_layout(keys: pa.Array) -> tuple[NumpyArray, NumpyArray, NumpyArray]:
    """The bytes of all keys, the start of each, and its length (0 for a null)."""
    kind = np.int64 if pa.types.is_large_binary(keys.type) else np.int32
    _, offsets, data = keys.buffers()
    bounds = np.frombuffer(offsets, dtype=kind, count=keys.offset + len(keys) + 1)[keys.offset :].astype(np.int64)
    lengths = np.diff(bounds)
    if keys.null_count:
        lengths = np.where(keys.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    plain = np.frombuffer(data, dtype=np.uint8) if data is not None and data.size else np.zeros(1, dtype=np.uint8)
    return plain, bounds[:-1], lengths

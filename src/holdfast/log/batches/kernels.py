"""Which kernel does the work on bytes: the C extension where it was built, pure Python elsewhere.

The one rule: both return equal values for every call, faults included; the tests compare them. Callers do not choose:
`BEST` is the default of every function that takes a kernel. After a change of the C sources, install the package again.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from holdfast.log.batches import pure
from holdfast.vocabulary.native import native

Buffer: TypeAlias = bytes | bytearray | memoryview
FaultTuple: TypeAlias = tuple[int, int, int, int]
Cursor: TypeAlias = tuple[int, int, int]  # byte, index, and the offset delta before it
Written: TypeAlias = tuple[bytearray, int, int, int, int]
Inflate: TypeAlias = Callable[[int, memoryview, int], Buffer]

T = TypeVar("T", bound=tuple[object, ...])


class BatchSummary(NamedTuple):
    """What batches one behind another are in sum. Timestamps are -1 where no batch has one."""

    batch_count: int
    record_count: int
    first_offset: int
    end_offset: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    packed_bytes: int  # of batches that their producers compressed


class HeaderColumns(NamedTuple):
    """All headers of all rows, one after another; `lists` has where each row's begin."""

    entries: int
    lists: Buffer
    keys: Buffer
    values: Buffer
    valid: Buffer
    nulls: int


class Columns(NamedTuple):
    """Arrow's own buffers. `data` is what the views point into; a set bit in `…_valid` is a value that is not null."""

    rows: int
    data: list[Buffer]
    offsets: Buffer
    timestamps: Buffer
    types: Buffer
    keys: Buffer
    key_valid: Buffer
    key_nulls: int
    values: Buffer
    value_valid: Buffer
    value_nulls: int
    headers: HeaderColumns | None


class BatchKernel(Protocol):
    """Functions over whole buffers. A broken rule is an answer: a tuple (rule, at, record, given)."""

    def scan(
        self, buffer: Buffer, stored: bool, batch_bytes_max: int, records_max: int, kind: type[T], /
    ) -> list[T] | FaultTuple:
        """The headers of all batches in `buffer`, validated except for their checksums, as tuples of type `kind`."""
        ...

    def summarize(self, buffer: Buffer, end_offset: int, kind: type[T], /) -> T | FaultTuple:
        """The fields of `BatchSummary` for stored batches that are in order, from `end_offset` on, as a tuple of type `kind`."""
        ...

    def join_blocks(
        self, batches: list[Buffer], at: int, block_bytes: int, bytes_max: int, end_offset: int, kind: type[T], /
    ) -> tuple[list[tuple[Buffer, T]], int] | FaultTuple:
        """Stored batches from `at` on as blocks of a segment, until they have `bytes_max`, and the first that is left.

        A block is as many of these buffers, joined, as fit `block_bytes`, at most 4,096, or one as it is. With it come the
        fields of `BatchSummary`, as a tuple of type `kind`. The GIL is let go of once.
        """
        ...

    def check(self, payload: Buffer, header: tuple[object, ...], contiguous: bool, /) -> FaultTuple | None:
        """Validate every record of a decompressed payload against its header."""
        ...

    def keyless(self, payload: Buffer, header: tuple[object, ...], most: int, /) -> list[int] | FaultTuple:
        """The numbers of the first `most` records without a key, in a decompressed payload that `check` found sound."""
        ...

    def read(
        self, payload: Buffer, header: tuple[object, ...], cursor: Cursor, most: int, kind: type[T], /
    ) -> tuple[list[T], Cursor] | FaultTuple:
        """Up to `most` records from the cursor on, as tuples of type `kind`, and the cursor behind them."""
        ...

    def read_chosen(
        self, payload: Buffer, header: tuple[object, ...], deltas: Sequence[int], kind: type[T], /
    ) -> list[T] | FaultTuple:
        """The records with these offset deltas, which grow, as tuples of type `kind`. Others are skipped, not judged."""
        ...

    def pick(
        self, payload: Buffer, header: tuple[object, ...], words: Buffer, at: int, buffers: list[bytearray], /
    ) -> int | FaultTuple:
        """Append the records that words from `at` on name to the buffers of their buckets; the first word behind this batch.

        A word is `offset << 8 | bucket`; they grow. A record has its offset and its time in front (`PICKED`).
        """
        ...

    def pick_extents(
        self, batches: list[tuple[Buffer, tuple[object, ...]]], words: Buffer, at: int, bytes_max: int, /
    ) -> tuple[bytes, list[tuple[int, int, int]], int] | FaultTuple:
        """The same of several batches: the records one behind another, those of a bucket together, as extents.

        Each is (bucket, bytes, CRC-32C), no larger than `bytes_max` unless it is one record. The GIL is not held.
        """
        ...

    def write(self, records: Sequence[tuple[object, ...]], base_offset: int, reserve: int, /) -> Written | FaultTuple:
        """`reserve` zero bytes and the records; their count, last offset delta, first and greatest timestamp."""
        ...

    def write_values(
        self, values: Sequence[Buffer | None], key: Buffer | None, timestamp: int, reserve: int, /
    ) -> Written | FaultTuple:
        """`write` for values without headers that have one key and one timestamp, numbered from 0 on."""
        ...

    def columns(
        self, buffers: Sequence[Buffer], inflate: Inflate, with_headers: bool, /
    ) -> tuple[object, ...] | FaultTuple:
        """The fields of `Columns` for all records that are not control records."""
        ...


PURE: Final = cast(BatchKernel, pure)

NATIVE: Final = cast(BatchKernel | None, native)
BEST: Final[BatchKernel] = NATIVE if NATIVE is not None else PURE

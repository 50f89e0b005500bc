"""Record batches: the C kernel against its twin in Python, in records per second of one core.

Records have 100-byte values, a key, and headers where it says so. One call works on 8 MiB of batches of 100 records: what a
segment holds. Rates are by processor time, so that they are a core's whatever else runs.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bench.figures import Figure
from bench.measure import compare_work
from holdfast.log.batches import Record, RecordBatchLimits, decode, encode, split_batches, to_arrow, validate_records
from holdfast.log.batches.kernels import NATIVE, PURE, BatchKernel
from holdfast.vocabulary.settings import MIB

PART: Final = "batches"
_BATCH_RECORDS: Final = 100
_LIMITS: Final = RecordBatchLimits()
_ARROW_AIM: Final = 20.0  # million records a second and core


@dataclass(frozen=True)
class _Data:
    """What is worked on: many batches for the kernel in C, few for its twin, which needs fewer to show its rate."""

    what: str
    records: list[Record]
    batches: list[bytes]
    few: list[bytes]
    rounds: int


Work = Callable[[list[bytes], BatchKernel], object]


async def measure(directory: Path, *, quick: bool, say: Callable[[str], None]) -> AsyncIterator[Figure]:
    assert NATIVE is not None, "the C extension is not built: install the package with a compiler"
    for headers in (1, 2, 0):
        say(f"{headers} headers")
        records = _records(headers)
        batches = _batches(records)
        what = f"100-byte values, {headers} header{'' if headers == 1 else 's'}"
        data = _Data(what, records, batches, batches[: max(1, len(batches) // 50)], 5 if quick else 15)
        aim = _ARROW_AIM if headers == 1 else None
        yield _figure("to Arrow", data, partial(_to_arrow, headers > 0), aim=aim)
        if headers == 1:
            yield _figure("to Arrow without views (Spark)", data, _to_plain_arrow)
            yield _figure("split: headers and checksums", data, _split)
            yield _figure("every record validated", data, _validate)
            yield _figure("decoded to Python records", data, _decode)
            yield _figure("encoded from Python records", data, partial(_encode, records))


def _figure(name: str, data: _Data, work: Work, *, aim: float | None = None) -> Figure:
    """Million records a second; the twin does less, so its rate is brought to what it did."""
    assert NATIVE is not None
    count = len(data.batches) * _BATCH_RECORDS
    found = compare_work(
        partial(work, data.batches, NATIVE), partial(work, data.few, PURE), amount=count / 1e6, rounds=data.rounds
    )
    share = len(data.few) / len(data.batches)
    bytes_each = sum(map(len, data.batches)) / count
    return Figure(
        part=PART,
        what=f"{name}, {data.what}",
        unit="M rec/s",
        ours=found.ours,
        reference=found.reference * share,
        ratio=found.ratio / share,
        aim="" if aim is None else f"≥ {aim:g} M/s",
        met=None if aim is None else found.ours >= aim,
        note=f"best round {found.best:,.1f}; {found.ours * bytes_each:,.0f} MB/s; reference: the twin in Python",
    )


def _records(headers: int) -> list[Record]:
    pairs = tuple((f"header-{at}", b"value-of-%d" % at) for at in range(headers))
    return [Record(at, 1_700_000_000_000 + at, b"key-%04d" % at, bytes(100), pairs) for at in range(_BATCH_RECORDS)]


def _batches(records: list[Record]) -> list[bytes]:
    one = encode(records)
    return [
        encode([each._replace(offset=each.offset + base) for each in records], base_offset=base)
        for base in range(0, 8 * MIB // len(one) * _BATCH_RECORDS, _BATCH_RECORDS)
    ]


def _to_arrow(include_headers: bool, batches: list[bytes], kernel: BatchKernel) -> object:
    return to_arrow(batches, include_headers=include_headers, kernel=kernel)


def _to_plain_arrow(batches: list[bytes], kernel: BatchKernel) -> object:
    return to_arrow(batches, include_headers=True, views=False, kernel=kernel)


def _split(batches: list[bytes], kernel: BatchKernel) -> None:
    for batch in batches:
        split_batches(batch, limits=_LIMITS, stored=True, kernel=kernel)


def _validate(batches: list[bytes], kernel: BatchKernel) -> None:
    for batch in batches:
        validate_records(batch, stored=True, kernel=kernel)


def _decode(batches: list[bytes], kernel: BatchKernel) -> None:
    for batch in batches:
        for _ in decode(batch, kernel=kernel):
            pass


def _encode(records: list[Record], batches: list[bytes], kernel: BatchKernel) -> None:
    for _ in batches:
        encode(records, kernel=kernel)

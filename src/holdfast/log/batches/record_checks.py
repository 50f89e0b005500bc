"""Checking the records of batches that a producer sent, as far as a consumer has to read them.

The one rule: what a consumer could not read is refused, and nothing else. Lengths, counts, varints and offsets that do not fit are
reasons. A record later than its batch's maximum is none: it is readable, and Kafka's brokers correct the maximum.
"""

from collections.abc import Sequence
from typing import Final

from holdfast.log.batches.batch_split import RecordBatch
from holdfast.log.batches.header import HEADER_BYTES
from holdfast.log.batches.kernels import BEST, BatchKernel
from holdfast.log.batches.limits import RecordBatchLimits
from holdfast.log.batches.records import inflate
from holdfast.log.batches.rules import BatchFault, fault_error
from holdfast.vocabulary.errors import InvalidError

NAMED_MAX: Final = 1_000  # records at fault that are named

_ANY_TIMESTAMP: Final = (1 << 63) - 1


class KeylessRecordsError(InvalidError):
    """Records for a compacted topic have no key: those with the numbers `records` in the request, and perhaps more."""

    def __init__(self, records: Sequence[int]) -> None:
        super().__init__("records without a key", list(records[:3]), "none: the topic is compacted")
        self.args = (tuple(records),)
        self.records = tuple(records)


def check_records(
    batches: Sequence[RecordBatch], *, limits: RecordBatchLimits, keyed: bool = False, kernel: BatchKernel = BEST
) -> int:
    """Refuse batches (from `split_batches`) that no consumer could read; with `keyed`, also records without a key.

    `InvalidBatchError`, `KeylessRecordsError`. It takes as much memory as the largest batch decompressed, up to the limit.
    Returns how many bytes they are in all, decompressed.
    """
    at = number = inflated = 0
    keyless: list[int] = []
    for header, data in batches:
        payload = inflate(header, data[HEADER_BYTES:], limits=limits, stored=False, at=at)
        found = kernel.check(payload, header, True)
        if found is not None:
            found = kernel.check(payload, header._replace(max_timestamp=_ANY_TIMESTAMP), True)
        if found is None and keyed:
            without = kernel.keyless(payload, header, NAMED_MAX - len(keyless))
            if isinstance(without, tuple):
                found = without
            else:
                keyless += (number + each for each in without)
        if found is not None:
            raise fault_error(BatchFault._make(found)._replace(at=at), stored=False)
        at, number, inflated = at + len(data), number + header.count, inflated + len(payload)
    if keyless:
        raise KeylessRecordsError(keyless)
    return inflated

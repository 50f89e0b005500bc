"""The rules a record batch can break, and the errors that say which one it broke, where, and with what.

The one rule: a kernel (native or pure) answers with a `Fault`, and only this page turns it into an error. What a producer
sent wrongly is an `InvalidError`; what our own storage holds wrongly is a `CorruptError`. Gateways map `error.rule`.
"""

from enum import IntEnum
from typing import Final, NamedTuple

from holdfast.vocabulary.errors import CorruptError, InvalidError


class BatchRule(IntEnum):
    """What is wrong. The numbers are also those of `src/_native/batch.h`."""

    EMPTY = 1
    CUT = 2
    MAGIC = 3
    LENGTH = 4
    SIZE = 5
    CODEC = 6
    COUNT = 7
    OFFSETS = 8
    BASE_OFFSET = 9
    TIMESTAMP = 10
    CONTROL = 11
    PRODUCER = 12
    SEQUENCE = 13
    TRANSACTIONAL = 14
    CRC = 15
    COMPRESSED = 16
    INFLATED_SIZE = 17
    ORDER = 18
    RECORD_CUT = 20
    VARINT = 21
    RECORD_LENGTH = 22
    OFFSET_DELTA = 23
    RECORD_TIMESTAMP = 24
    KEY = 25
    VALUE = 26
    HEADERS = 27
    HEADER_KEY = 28
    HEADER_VALUE = 29
    TRAILING = 30


# (what the given value is, what would be allowed)
_TEXTS: Final[dict[BatchRule, tuple[str, str]]] = {
    BatchRule.EMPTY: ("number of batches", "at least one record batch"),
    BatchRule.CUT: ("bytes left", "the whole batch, as long as its length field"),
    BatchRule.MAGIC: ("magic", "2"),
    BatchRule.LENGTH: ("length field", "at least 49"),
    BatchRule.SIZE: ("bytes of the batch", "at most the limit of the topic"),
    BatchRule.CODEC: ("compression codec", "0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd"),
    BatchRule.COUNT: ("record count", "the number of records in the batch, at least 1 from a producer"),
    BatchRule.OFFSETS: ("last offset delta", "record count - 1, or more where a log was compacted"),
    BatchRule.BASE_OFFSET: ("base offset", "not negative, with room for all records"),
    BatchRule.TIMESTAMP: ("timestamp", "milliseconds since 1970, or -1 for none"),
    BatchRule.CONTROL: ("attributes", "no control batch from a producer"),
    BatchRule.PRODUCER: ("producer id or epoch", "an id with an epoch of at least 0, or id -1"),
    BatchRule.SEQUENCE: ("base sequence", "at least 0 with a producer id"),
    BatchRule.TRANSACTIONAL: ("attributes", "transactional only with a producer id"),
    BatchRule.CRC: ("CRC-32C", "the checksum of the bytes after it"),
    BatchRule.COMPRESSED: ("compressed bytes", "one complete stream of the codec the header names"),
    BatchRule.INFLATED_SIZE: ("bytes after decompression", "at most inflated_bytes_max"),
    BatchRule.ORDER: ("base offset", "at least the end of the batch before, in order"),
    BatchRule.RECORD_CUT: ("record length", "a record that ends inside its batch, with its fields inside it"),
    BatchRule.VARINT: ("varint", "at most 32 bits, 64 for a timestamp"),
    BatchRule.RECORD_LENGTH: ("record length or bytes left in it", "a record that its fields fill exactly"),
    BatchRule.OFFSET_DELTA: ("offset (delta)", "growing, within the batch, without gaps from a producer"),
    BatchRule.RECORD_TIMESTAMP: ("record timestamp (delta)", "at least -1 and at most the batch's maximum"),
    BatchRule.KEY: ("key length", "-1 for null, or what the record holds"),
    BatchRule.VALUE: ("value length", "-1 for null, or what the record holds"),
    BatchRule.HEADERS: ("header count", "not negative, and what the record holds"),
    BatchRule.HEADER_KEY: ("header key length", "not negative, and what the record holds"),
    BatchRule.HEADER_VALUE: ("header value length", "-1 for null, or what the record holds"),
    BatchRule.TRAILING: ("bytes after the last record", "0"),
}


class BatchFault(NamedTuple):
    """A broken rule: in the batch at byte `at`, in its record number `record` (-1: in its header), with value `given`."""

    rule: int
    at: int
    record: int
    given: int

    @property
    def place(self) -> str:
        batch = f"record batch at byte {self.at}"
        return batch if self.record < 0 else f"record {self.record} of {batch}"


class InvalidBatchError(InvalidError):
    """A producer sent a batch that breaks `fault.rule`. Nothing of the request was accepted."""

    def __init__(self, fault: BatchFault) -> None:
        self.fault, self.rule = fault, BatchRule(fault.rule)
        what, allowed = _TEXTS[self.rule]
        super().__init__(what, fault.given, allowed)
        self.args = (fault,)  # what pickles and compares

    def __str__(self) -> str:
        return f"{self.fault.place}: {super().__str__()}"


class CorruptBatchError(CorruptError):
    """A batch that was accepted once now breaks `fault.rule`."""

    def __init__(self, fault: BatchFault) -> None:
        self.fault, self.rule = fault, BatchRule(fault.rule)
        what, allowed = _TEXTS[self.rule]
        super().__init__(fault.place, f"invalid {what} {fault.given}: must be {allowed}")
        self.args = (fault,)


def fault_error(fault: tuple[int, int, int, int], *, stored: bool) -> InvalidBatchError | CorruptBatchError:
    """The error for a kernel's fault: a producer's mistake, or damage to what is stored."""
    known = BatchFault._make(fault)
    return CorruptBatchError(known) if stored else InvalidBatchError(known)

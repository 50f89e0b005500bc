"""How large a batch may be. Every limit is a setting."""

from dataclasses import dataclass

from holdfast.vocabulary.settings import MIB, check_between


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBatchLimits:
    """What a producer may send, and how far a compressed batch may grow when it is read."""

    batch_bytes_max: int = MIB + 12  # Kafka's default for message.max.bytes
    records_max: int = 1_000_000  # the header of a compressed batch could claim two thousand million
    inflated_bytes_max: int = 128 * MIB

    def __post_init__(self) -> None:
        check_between("batch_bytes_max", self.batch_bytes_max, 1, 2**31 - 1)
        check_between("records_max", self.records_max, 1, 2**31 - 1)
        check_between("inflated_bytes_max", self.inflated_bytes_max, 1, 2**31 - 1)

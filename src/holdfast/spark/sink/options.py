"""What a writer may be told with `.option(…)`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.client.cluster_address import ClusterAddress
from holdfast.log.batches.compression import codec_number
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import KIB, MIB, check_between, settings_from

# Spark hands its own options to every sink, too.
_SPARK_OPTIONS: Final = frozenset({"checkpointlocation", "path"})
_ADDRESS_OPTIONS: Final = ("bootstrap", "store", "objects")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Values of one writer. Where the cluster is, is `Reach`'s."""

    topic: str = ""
    """Where rows go that do not name a topic themselves."""
    write_id: str = ""
    """Of a batch write: a name under which it happens once, however often it is run."""
    write_number: int = 0
    """Of a series of batch writes under one `write_id`: each number happens once, in growing order."""
    compression: str = "none"
    batch_bytes: int = 900 * KIB
    """How much is collected for a RecordBatch, before compression."""
    piece_bytes: int = 16 * MIB
    """How much a task holds in memory before it stages it."""
    inline_bytes: int = 48 * KIB
    """A task that has no more than this hands it to the driver, without an object."""
    stall_ms_max: int = 600_000
    """How long a driver goes on publishing without progress. Far less than the day for which brokers remember a producer."""

    def __post_init__(self) -> None:
        codec_number(self.compression)
        check_between("batchBytes", self.batch_bytes, KIB, 32 * MIB)
        check_between("pieceBytes", self.piece_bytes, 64 * KIB, 512 * MIB)
        check_between("inlineBytes", self.inline_bytes, 0, MIB)
        check_between("stallMsMax", self.stall_ms_max, 1_000, 6 * 3_600_000)
        check_between("writeNumber", self.write_number, 0, 2**63 - 1)
        if self.write_number and not self.write_id:
            raise InvalidError("option writeNumber", self.write_number, "0 without a writeId")
        if len(self.write_id) > 200 or not self.write_id.isprintable():
            raise InvalidError("option writeId", self.write_id[:80], "at most 200 printable characters")


_NAMES: Final = {name.replace("_", ""): name for name in SinkOptions.__slots__}


def parse_sink_options(given: Mapping[str, str]) -> tuple[SinkOptions, ClusterAddress]:
    """Options by the names Spark has them under: without regard to case. An unknown one is an `InvalidError`."""
    values: dict[str, object] = {}
    cluster_address: dict[str, str] = {}
    for name, value in given.items():
        plain = name.lower()
        if plain in _NAMES:
            values[_NAMES[plain]] = value
        elif plain in _ADDRESS_OPTIONS:
            cluster_address[plain] = value
        elif plain not in _SPARK_OPTIONS:
            raise InvalidError("option", name, "one of " + ", ".join(sorted((*_ADDRESS_OPTIONS, *_camel_case_names()))))
    if not cluster_address.get("bootstrap"):
        raise InvalidError("option bootstrap", "", "the Kafka address of a broker, as in 127.0.0.1:9092")
    return settings_from(SinkOptions, values), ClusterAddress(**cluster_address)


def _camel_case_names() -> list[str]:
    """The options' names as people write them."""
    return [first + "".join(map(str.title, rest)) for first, *rest in (name.split("_") for name in _NAMES.values())]

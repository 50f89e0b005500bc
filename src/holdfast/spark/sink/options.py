"""The options of the sink, parsed and checked before anything is opened."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.client.cluster_address import ClusterAddress
from holdfast.log.batches.compression import codec_number
from holdfast.spark.cluster_options import ADDRESS_OPTIONS, parse_cluster_address
from holdfast.spark.kafka_options import SINK, from_kafka_options
from holdfast.spark.login_options import PREFIXES
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import KIB, MIB, check_between, settings_from

# Spark passes its own options to every sink, too.
_SPARK_OPTIONS: Final = frozenset({"checkpointlocation", "path", "queryname"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The options of one writer, without the cluster's address."""

    topic: str = ""
    """The topic of rows whose column `topic` is absent or null."""
    write_id: str = ""
    """Of a batch write: repeating it under the same id has no further effect."""
    write_number: int = 0
    """Of a series of batch writes under one `write_id`: each number takes effect once, in ascending order."""
    compression: str = "none"
    batch_bytes: int = 900 * KIB
    """The size of a RecordBatch before compression."""
    piece_bytes: int = 16 * MIB
    """How much a task buffers before it stages a piece."""
    inline_bytes: int = 48 * KIB
    """A task with at most this much sends it to the driver inline, without an object."""
    stall_ms_max: int = 600_000
    """How long a driver publishes without progress. Far less than the day for which brokers remember a producer."""

    def __post_init__(self) -> None:
        codec_number(self.compression)
        check_between("batchBytes", self.batch_bytes, KIB, 32 * MIB)
        check_between("pieceBytes", self.piece_bytes, 64 * KIB, 512 * MIB)
        check_between("inlineBytes", self.inline_bytes, 0, MIB)
        check_between("stallMsMax", self.stall_ms_max, 1_000, 6 * 3_600_000)
        check_between("writeNumber", self.write_number, 0, 2**63 - 1)
        if self.write_number and not self.write_id:
            raise InvalidError("option writeNumber", self.write_number, "0 or absent without a writeId")
        if len(self.write_id) > 200 or not self.write_id.isprintable():
            raise InvalidError("option writeId", self.write_id[:80], "at most 200 printable characters")


_ADDRESS_NAMES: Final = frozenset(map(str.lower, ADDRESS_OPTIONS))
_NAMES: Final = {name.replace("_", ""): name for name in SinkOptions.__slots__}


def parse_sink_options(given: Mapping[str, str]) -> tuple[SinkOptions, ClusterAddress]:
    """The options of a writer and the cluster's address. Names are case-insensitive; an unknown one is an `InvalidError`.

    Those of Spark's Kafka connector are accepted, too (`kafka_options`).
    """
    values: dict[str, object] = {}
    address: dict[str, str] = {}
    for name, value in from_kafka_options(given, SINK).items():
        plain = name.lower()
        if plain in _NAMES:
            values[_NAMES[plain]] = value
        elif plain in _ADDRESS_NAMES or plain.startswith(PREFIXES):
            address[plain] = value
        elif plain not in _SPARK_OPTIONS:
            raise InvalidError("option", name, "one of " + ", ".join(sorted((*ADDRESS_OPTIONS, *_camel_case_names()))))
    if not address.get("bootstrap"):
        raise InvalidError("option bootstrap", "", "the Kafka address of a broker, as in 127.0.0.1:9092")
    return settings_from(SinkOptions, values), parse_cluster_address(address)


def _camel_case_names() -> list[str]:
    """The options' names as documented."""
    return [first + "".join(map(str.title, rest)) for first, *rest in (name.split("_") for name in _NAMES.values())]

"""The options of Spark's Kafka connector, as ours: a job moves by `format("kafka")` → `format("holdfast")`.

The one rule: nothing is given twice, and nothing that matters is dropped. An option in both spellings is refused with both names;
one without a meaning here, such as a consumer's tuning, is logged. Those of logins and TLS keep their names (`login_options`).
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.spark.login_options import PREFIXES
from holdfast.vocabulary.errors import InvalidError

SERVERS: Final = "kafka.bootstrap.servers"
_PREFIX: Final = "kafka."
_ASSIGN: Final = "assign"
_ASSIGN_FORM: Final = 'JSON such as {"orders": [0, 2]}'
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KafkaNames:
    """`renamed`: the connector's name → ours. `ignored`: names that have no effect here."""

    renamed: Mapping[str, str]
    ignored: frozenset[str] = frozenset()


SOURCE: Final = KafkaNames(
    renamed={
        SERVERS: "bootstrap",
        "subscribe": "topics",
        "subscribePattern": "topicsPattern",
        "maxOffsetsPerTrigger": "maxRowsPerTrigger",
        "minOffsetsPerTrigger": "minRows",
    },
    ignored=frozenset(
        {
            "groupIdPrefix",
            "kafkaConsumer.pollTimeoutMs",
            "fetchOffset.numRetries",
            "fetchOffset.retryIntervalMs",
            "minPartitions",
            "maxRecordsPerPartition",
        }
    ),
)
SINK: Final = KafkaNames(
    renamed={SERVERS: "bootstrap", "kafka.compression.type": "compression"}, ignored=frozenset({"includeHeaders"})
)


def spelled_as_kafka(given: Mapping[str, str]) -> bool:
    """Whether these are the options of a job for the connector."""
    return any(name.lower() == SERVERS for name in given)


def from_kafka_options(given: Mapping[str, str], names: KafkaNames) -> dict[str, str]:
    """The options under our names; those that are ours already stay as they are. `InvalidError` names both spellings."""
    ours: dict[str, str] = {}
    spelled: dict[str, str] = {}  # our name in lower case → as it was given
    renamed = {name.lower(): (name, our_name) for name, our_name in names.renamed.items()}
    ignored = {name.lower() for name in names.ignored}
    dropped = []
    for name, value in given.items():
        plain = name.lower()
        if plain in renamed:
            written, our_name = renamed[plain]
            _add(ours, spelled, our_name, value, written)
        elif plain == _ASSIGN and names is SOURCE:
            for our_name, translated in _assigned(value).items():
                _add(ours, spelled, our_name, translated, _ASSIGN)
        elif plain.startswith(PREFIXES):
            ours[plain] = value
        elif plain in ignored or plain.startswith(_PREFIX):
            dropped.append(name)
        else:
            _add(ours, spelled, name, value, name)
    if "topics" in spelled and "topicspattern" in spelled:
        both = f"options {spelled['topics']} and {spelled['topicspattern']}"
        raise InvalidError(both, "both", "exactly one of the two")
    if dropped:
        _log.warning("options of Spark's Kafka connector without effect here: %s", ", ".join(sorted(dropped)))
    return ours


def _add(ours: dict[str, str], spelled: dict[str, str], our_name: str, value: str, written: str) -> None:
    if not value.strip():
        ours.setdefault(our_name, value)
        return
    before = spelled.setdefault(our_name.lower(), written)
    if before != written:
        raise InvalidError(f"options {before} and {written}", "both", "only one of the two")
    ours[our_name] = value


def _assigned(text: str) -> dict[str, str]:
    """Topics and their partitions."""
    try:
        read = json.loads(text)
    except ValueError:
        raise InvalidError("option assign", text, _ASSIGN_FORM) from None
    if not isinstance(read, dict) or not read or not all(isinstance(numbers, list) for numbers in read.values()):
        raise InvalidError("option assign", text, _ASSIGN_FORM)
    return {"topics": ",".join(read), "partitions": json.dumps(read)}

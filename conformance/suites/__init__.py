"""Every suite, in the order of the page.

A suite is a module here, an entry below, and `expected/NAME.yaml` where something fails.
"""

from collections.abc import Sequence
from typing import Final

from conformance.model import Suite
from conformance.suites.connect import Connect
from conformance.suites.debezium import Debezium
from conformance.suites.flink import Flink
from conformance.suites.franz_go import FranzGo
from conformance.suites.java_clients import JavaClients
from conformance.suites.kafka_python import KafkaPython
from conformance.suites.karapace import Karapace
from conformance.suites.librdkafka import IdempotentLibrdkafka, Librdkafka
from conformance.suites.mirror_maker import MirrorMaker
from conformance.suites.spark import Spark
from conformance.suites.streams import Streams

SUITES: Final[Sequence[Suite]] = (
    FranzGo(),
    Librdkafka(),
    IdempotentLibrdkafka(),
    KafkaPython(),
    JavaClients(),
    MirrorMaker(),
    Connect(),
    Streams(),
    Debezium(),
    Flink(),
    Karapace(),
    Spark(),
)

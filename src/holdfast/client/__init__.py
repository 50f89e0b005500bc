"""Clients of a cluster: its brokers, its object storage, its HTTP gateway. Spark, pipelines and the command line stand on it.

Three clients, by purpose:

    BrokerClient     asynchronous, Kafka's protocol by topic id; no SASL, no TLS. For our own brokers, inside an event loop.
    KafkaClient      synchronous, on librdkafka, with SASL and TLS. For any Kafka; `open_topic_reader` reads one topic with it.
    HttpClient       synchronous, on the standard library. For the HTTP gateway.

Modules:

    addresses.py          Kafka addresses
    cluster_address.py    where brokers, store and objects are: a value
    cluster_access.py     an open cluster: direct access to store and objects, and its brokers
    types.py              ranges, counters and errors
    connection.py         one connection to a broker
    brokers.py            BrokerClient: topics, offsets, the tail of a partition
    producer.py           an idempotent producer whose sequences the caller assigns
    splits.py             which segments hold a range, and where to split it
    range_planner.py      offsets, offsets by time, parts of about equal size
    range_reader.py       the batches of a range, from object storage and the leader
    counted_objects.py    object storage with its reads counted
    loop_thread.py        an event loop on a thread, for synchronous callers
    librdkafka.py         KafkaClient: admin calls, producers, consumers
    kafka_errors.py       librdkafka's errors as ours
    partition_offsets.py  start, end and offsets by time through a KafkaClient
    topic_reader.py       one topic of any Kafka
    http_client.py        HttpClient

The one rule: no engine, no Spark and no Arrow here (import-linter). Names are imported at their first use, so that a command that
needs one client does not load the others.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.client.addresses import Bootstrap, BrokerAddress
    from holdfast.client.brokers import BrokerClient, TopicInfo
    from holdfast.client.cluster_access import ClusterAccess, DirectAccess
    from holdfast.client.cluster_address import ClusterAddress
    from holdfast.client.http_client import HttpClient, ProblemError
    from holdfast.client.librdkafka import KafkaClient
    from holdfast.client.range_planner import RangePlanner
    from holdfast.client.range_reader import RangeReader, ReadRequest
    from holdfast.client.topic_reader import KafkaRecord, TopicReader, open_topic_reader
    from holdfast.client.types import DataLossError, PartitionRange, ReadCounters, TopicChangedError, TopicOffsets

__all__ = [
    "Bootstrap",
    "BrokerAddress",
    "BrokerClient",
    "ClusterAccess",
    "ClusterAddress",
    "DataLossError",
    "DirectAccess",
    "HttpClient",
    "KafkaClient",
    "KafkaRecord",
    "PartitionRange",
    "ProblemError",
    "RangePlanner",
    "RangeReader",
    "ReadCounters",
    "ReadRequest",
    "TopicChangedError",
    "TopicInfo",
    "TopicOffsets",
    "TopicReader",
    "open_topic_reader",
]

_MODULES = {
    "addresses": ("Bootstrap", "BrokerAddress"),
    "brokers": ("BrokerClient", "TopicInfo"),
    "cluster_access": ("ClusterAccess", "DirectAccess"),
    "cluster_address": ("ClusterAddress",),
    "http_client": ("HttpClient", "ProblemError"),
    "librdkafka": ("KafkaClient",),
    "range_planner": ("RangePlanner",),
    "range_reader": ("RangeReader", "ReadRequest"),
    "topic_reader": ("KafkaRecord", "TopicReader", "open_topic_reader"),
    "types": ("DataLossError", "PartitionRange", "ReadCounters", "TopicChangedError", "TopicOffsets"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted((*globals(), *__all__))

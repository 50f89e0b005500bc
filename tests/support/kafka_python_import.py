"""kafka-python, imported in the one way that a run in which warnings are errors survives.

The client reads its protocol's schemas by a function that Python 3.11 calls deprecated. Its names are to be taken from
here.
"""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.admin import (
        ConfigResource,
        ConfigResourceType,
        MemberToRemove,
        OffsetSpec,
        OffsetTimestamp,
    )
    from kafka.codec import has_lz4, has_snappy, has_zstd
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokenProvider

    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition, errors

__all__ = [
    "ConfigResource",
    "ConfigResourceType",
    "CooperativeStickyAssignor",
    "KafkaAdminClient",
    "KafkaConsumer",
    "KafkaProducer",
    "KafkaPythonTokenProvider",
    "MemberToRemove",
    "OffsetAndMetadata",
    "OffsetSpec",
    "OffsetTimestamp",
    "RangePartitionAssignor",
    "RoundRobinPartitionAssignor",
    "StickyPartitionAssignor",
    "TopicPartition",
    "errors",
    "has_codec",
]


def has_codec(name: str) -> bool:
    """Whether the package that the client takes a compression from is there."""
    return bool({"lz4": has_lz4, "snappy": has_snappy, "zstd": has_zstd}.get(name, lambda: True)())

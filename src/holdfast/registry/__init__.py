"""The partition registry (PXRS): claims, fenced checkpoints, expiry, push assignment. Usable alone, over any Store.

Start with `holdfast.connect(…)` and `hf.registry(name)`: `RegistryStore` (the records) with makers of a `ConsumerEngine` (a
consumer) and a `ConsumerCoordinator` (who gets which partition).
"""

from holdfast.registry.coordinator import ConsumerCoordinator, CoordinatedConsumer
from holdfast.registry.delivery import Delivery, Handler, MessageSource, ThreadDelivery
from holdfast.registry.engine import ConsumerEngine
from holdfast.registry.model import (
    Assignment,
    ConsumerInfo,
    DeliveryFailure,
    Heartbeat,
    Message,
    PartitionMove,
    PartitionState,
)
from holdfast.registry.partitioners import ModuloPartitioner, Murmur2Partitioner, Partitioner
from holdfast.registry.queues import PartitionQueues, SimpleConsumer, SimpleProducer
from holdfast.registry.rebalancer import Rebalancer
from holdfast.registry.settings import PARTITIONS_MAX, EngineSettings, RegistrySettings
from holdfast.registry.store import RegistryStore
from holdfast.registry.view import RegistryView

__all__ = [
    "PARTITIONS_MAX",
    "Assignment",
    "ConsumerCoordinator",
    "ConsumerEngine",
    "ConsumerInfo",
    "CoordinatedConsumer",
    "Delivery",
    "DeliveryFailure",
    "EngineSettings",
    "Handler",
    "Heartbeat",
    "Message",
    "MessageSource",
    "ModuloPartitioner",
    "Murmur2Partitioner",
    "PartitionMove",
    "PartitionQueues",
    "PartitionState",
    "Partitioner",
    "Rebalancer",
    "RegistrySettings",
    "RegistryStore",
    "RegistryView",
    "SimpleConsumer",
    "SimpleProducer",
    "ThreadDelivery",
]

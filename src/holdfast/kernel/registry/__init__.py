"""The partition registry (PXRS): claims, fenced checkpoints, expiry, push assignment. Usable alone, over any Store.

Start with `RegistryStore` (the records), `ConsumerEngine` (a consumer) and `ConsumerCoordinator` (who gets what).
"""

from holdfast.kernel.registry.coordinator import ConsumerCoordinator, Engine
from holdfast.kernel.registry.delivery import Delivery, Handler, Source, ThreadDelivery
from holdfast.kernel.registry.demo import DemoPhase, run_demo
from holdfast.kernel.registry.engine import ConsumerEngine
from holdfast.kernel.registry.manager import PartitionManager
from holdfast.kernel.registry.nouns import (
    Assignment,
    Beat,
    ConsumerInfo,
    Failure,
    Message,
    Move,
    PartitionState,
)
from holdfast.kernel.registry.queues import PartitionQueues, SimpleConsumer, SimpleProducer
from holdfast.kernel.registry.settings import EngineSettings, RegistrySettings
from holdfast.kernel.registry.store import RegistryStore
from holdfast.kernel.registry.strategy import ModuloStrategy, Murmur2Strategy, PartitionStrategy
from holdfast.kernel.registry.view import View

__all__ = [
    "Assignment",
    "Beat",
    "ConsumerCoordinator",
    "ConsumerEngine",
    "ConsumerInfo",
    "Delivery",
    "DemoPhase",
    "Engine",
    "EngineSettings",
    "Failure",
    "Handler",
    "Message",
    "ModuloStrategy",
    "Move",
    "Murmur2Strategy",
    "PartitionManager",
    "PartitionQueues",
    "PartitionState",
    "PartitionStrategy",
    "RegistrySettings",
    "RegistryStore",
    "SimpleConsumer",
    "SimpleProducer",
    "Source",
    "ThreadDelivery",
    "View",
    "run_demo",
]

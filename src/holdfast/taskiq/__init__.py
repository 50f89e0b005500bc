"""taskiq on heaps: `HoldfastBroker("localhost:9092")`. docs/how-to/celery.md."""

from holdfast.taskiq.broker import HoldfastBroker

__all__ = ["HoldfastBroker"]

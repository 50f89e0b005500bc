"""Dramatiq on heaps: `dramatiq.set_broker(HoldfastBroker("localhost:9092"))`. docs/how-to/celery.md."""

from holdfast.dramatiq.broker import HoldfastBroker

__all__ = ["HoldfastBroker"]

"""Heaps: durable priority queues as views of log partitions. What gateways call is `service.HeapService`."""

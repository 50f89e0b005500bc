"""Heaps end to end, beside other durable priority queues: `python -m bench.heap`."""

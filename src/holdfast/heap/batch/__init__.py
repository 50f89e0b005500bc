"""Batches of messages that are enqueued in several partitions of a heap topic, all or none of them."""

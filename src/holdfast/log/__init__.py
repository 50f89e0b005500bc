"""The log: record batches, write-ahead log, segments, partitions. Knows the contracts and the kernel, never an engine."""

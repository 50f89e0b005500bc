"""The log: record batches, write-ahead log, segments, partitions. It imports the contracts and the kernel, never an engine."""

"""Streams between agents: one connection per ordered pair carries all partitions. What messages mean is known to their two ends."""

"""More partitions for a heap that is in use: what that means for enqueues that are repeated, and for its spine."""

"""`holdfast top`: a live view of nodes, topics, groups, leases and pipelines, from their metrics."""

"""Several agents on one host: what they do together, beside one, and beside another cluster. See docs/cluster-bench.md."""

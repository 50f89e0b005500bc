"""One partition's log: appended under a lease, served from tail and segments, published to object storage."""

"""Consumer groups: members, generations and committed offsets, in shards with a lease each. No I/O but the store's."""

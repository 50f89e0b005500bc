"""Consumer groups: members, generations and offsets, sharded by lease."""

"""The protocols of heaps in a seeded world: partitions, spines and their leaders, with what can go wrong between them."""

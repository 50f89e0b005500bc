"""Engines behind the Store contract. They know the contracts and the vocabulary, nothing else."""

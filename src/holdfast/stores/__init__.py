"""Engines behind the Store contract. They import contracts and vocabulary, nothing else."""

"""A seeded world with virtual time, and the checker of its history."""

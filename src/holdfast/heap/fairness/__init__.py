"""Fairness of heaps: shares of keys within a priority, limits of leases, and rates. Pure."""

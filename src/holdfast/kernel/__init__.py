"""Ownership: sessions, leases with epochs, membership, placement, transfers, and the registry built on them."""

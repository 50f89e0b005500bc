"""Ownership: sessions, leases with epochs, membership, placement, transfers, mirrors."""

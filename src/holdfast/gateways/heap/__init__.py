"""Heap operations for every gateway: served here, or at the leader of their partition."""

"""Shared cursors: one position per topic, for all readers of it. A lease handler and a service, as `groups` is."""

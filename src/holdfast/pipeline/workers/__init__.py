"""The worker's part in `holdfast serve`: who runs which slots, under which leases, and a Spark driver that does the work.

Start with `records` (what a worker publishes), `deciding` (who takes what, pure) and `worker` (its life).
"""

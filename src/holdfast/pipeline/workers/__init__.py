"""The worker role of `holdfast serve`: slots as leases, partitions as claims, and the Spark driver that runs them.

Start with `catalog.worker_status` (what a worker publishes), `slot_assignment` and `partition_assignment` (who takes what, pure),
and `worker` (its life).
"""

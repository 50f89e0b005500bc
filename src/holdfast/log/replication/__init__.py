"""Quorum replication of a partition's tail: positions and logs, replicas, leaders, takeovers, and the messages between them.

The one rule: decisions are pure. A message, an answer or a finished write goes in; records to write, messages to send and commits
to make come out. I/O is around them: `replica_wal.py` writes the records, `replica_host.py` has all replicas of an agent, and
leaders and takeovers reach them by a `network.py`. `docs/replication.md` says how it works, and what is missing.
"""

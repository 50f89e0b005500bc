"""Quorum replication of a partition's tail: positions and logs, replicas, leaders, takeovers, and the messages between them.

The one rule: decisions are pure. A message, an answer or a finished write goes in; records to write, messages to send and commits
to make come out. `replica_wal.py` alone does I/O: it writes the records. `docs/replication.md`
says how it works, and what is missing.
"""

"""Quorum replication of a partition's tail: positions and logs, replicas, leaders, takeovers, and the messages between them.

The one rule: decisions are pure. A message, an answer or a finished write goes in; frames to write, messages to send and commits to
make come out. Who does them is not here. Nothing of the server uses this package yet.
"""

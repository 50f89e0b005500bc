"""Stored pipelines: parts, revisions, generations, worker status. Every change is one commit."""

"""Pipelines in the store: parts, revisions, generations. Every change is one commit."""

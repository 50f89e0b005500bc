"""Holdfast: event logs, priority heaps and Spark pipelines on object storage, each owned by one lease at a time."""

__version__ = "0.1.0"

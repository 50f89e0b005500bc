"""Pipelines: from a topic to a table. So far the parts that need no I/O: types, mappings, coercion, drift, DDL and filters."""

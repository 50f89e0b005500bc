"""Filters: an expression language that always terminates and never raises. Grammar: docs/pipelines.md."""

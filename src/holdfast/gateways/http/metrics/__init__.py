"""Metrics for Prometheus, one file per part of the server. A test checks that docs/reference/metrics.md describes every family."""

"""Metrics for Prometheus, one file per part of the server. A test checks that docs/http.md describes every family."""

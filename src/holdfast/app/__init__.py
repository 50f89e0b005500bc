"""Composition root: joins engines, clocks and services into processes."""

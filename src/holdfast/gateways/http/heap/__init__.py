"""Heaps over HTTP: their JSON, and pops that wait."""

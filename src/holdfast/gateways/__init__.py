"""Gateways: each serves one protocol, maps its requests to the services below, and their errors in one table."""

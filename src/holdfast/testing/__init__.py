"""Shipped with the package: contract suites, real servers from wheels, fault injection."""

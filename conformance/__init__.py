"""Foreign test suites and ecosystem programs against a real `holdfast serve`: `make conformance`, docs/conformance.md.

Not part of `make test`: it downloads and builds other people's software, and takes long. Nothing foreign is kept
in this tree; each suite is fetched by its ecosystem's own package manager into a cache directory.
"""

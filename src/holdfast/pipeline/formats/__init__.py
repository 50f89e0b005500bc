"""Formats of source records: bytes to JSON values. Below filters and mapping, which see no difference between formats."""

"""ClickHouse over HTTP: `statements` (text), `connection` (answers and errors), `tables` (what is there), `sink` (the protocol)."""

"""ClickHouse over HTTP: `statements` (text), `inserts` (fenced inserts), `tables` (DDL and checks), `sink` (the contract)."""

"""ClickHouse as Holdfast uses it: types, quoting, conversions and a client; `embedded` is the chDB server."""

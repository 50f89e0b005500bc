"""`holdfast demo`: events, a pipeline, rows in ClickHouse, watched."""

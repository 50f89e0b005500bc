"""The log over HTTP: records as JSON, tails as server-sent events, and reads that wait."""

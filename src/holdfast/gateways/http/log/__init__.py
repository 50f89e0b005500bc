"""The log over HTTP: producing and reading records as JSON, lines or raw bytes, wherever a partition is led."""

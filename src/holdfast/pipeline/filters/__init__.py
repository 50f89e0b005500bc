"""Which records a pipeline takes: a small expression language that always ends and never raises. Grammar: docs/pipelines.md."""

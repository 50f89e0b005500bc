"""The data of pipelines: definitions, records, paths, errors. No I/O."""

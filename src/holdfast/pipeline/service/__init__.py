"""The service that gateways call: pipelines, previews, validation, dead letters, reprocessing. Imports no Spark."""

"""Pipelines: from a topic to a table. Layers from the bottom: model, filters, mapping, catalog, sinks; driver, workers, service."""

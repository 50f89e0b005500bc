"""Traces as OpenTelemetry has them: which are recorded, and how they leave the process."""

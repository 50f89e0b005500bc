"""The log for gateways that forward (HTTP, gRPC): producing, reading and administration, wherever a partition is led."""

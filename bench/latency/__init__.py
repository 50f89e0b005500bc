"""`python -m bench.latency`: tail latency and rate of single-record requests, beside Kafka, Valkey, NATS and the bare disk."""

"""`python -m bench.kafka`: the Kafka gateway beside Apache Kafka, NATS JetStream, librdkafka's mock and the loopback itself."""

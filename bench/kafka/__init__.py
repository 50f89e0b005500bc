"""`python -m bench.kafka`: the Kafka face beside Apache Kafka, NATS JetStream, librdkafka's mock and the loopback itself."""

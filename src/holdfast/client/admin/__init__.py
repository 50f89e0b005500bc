"""Topics, consumer groups and positions of any Kafka cluster, through a `KafkaClient`: for commands and for the HTTP gateway."""

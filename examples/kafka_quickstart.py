"""Produce a thousand records and consume them in a group, with an ordinary Kafka client.

Start a server in one terminal and this in another:

    holdfast serve --data ./data
    python examples/kafka_quickstart.py

Nothing in here is about Holdfast: it works with any Kafka address, and so does the code you have.
"""

import sys

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

TOPIC = "quickstart"
COUNT = 1_000
TIMEOUT_S = 30


def create_topic(bootstrap: str) -> None:
    """Four partitions; it may be there from the last time."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    try:
        admin.create_topics([NewTopic(TOPIC, 4)])[TOPIC].result(TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def produce(bootstrap: str) -> int:
    """Send them all, wait for all; how many were acknowledged."""
    acknowledged = 0

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        nonlocal acknowledged
        if error is not None:
            raise KafkaException(error)
        acknowledged += 1

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for number in range(COUNT):
        producer.produce(TOPIC, key=f"key-{number % 100}", value=f"value-{number}", on_delivery=on_delivery)
        producer.poll(0)
    producer.flush(TIMEOUT_S)
    return acknowledged


def consume(bootstrap: str) -> int:
    """Read as a member of a group until there are as many; commit; how many there were."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "quickstart-readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC])
    consumed = 0
    while consumed < COUNT:
        messages = consumer.consume(COUNT - consumed, timeout=TIMEOUT_S)
        if not messages:
            break
        for message in messages:
            if (error := message.error()) is not None:
                raise KafkaException(error)
        consumed += len(messages)
    if consumed:
        consumer.commit(asynchronous=False)
    consumer.close()
    return consumed


if __name__ == "__main__":
    address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
    create_topic(address)
    print(f"{produce(address)} records produced")
    print(f"{consume(address)} records consumed by the group")

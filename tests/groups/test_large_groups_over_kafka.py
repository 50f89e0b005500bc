"""Consumers of a large group, with librdkafka."""

from collections import Counter
from pathlib import Path

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.support.server_process import BROKER_ONLY, ServeProcess, started

from holdfast.vocabulary.clock import RealClock


def poll_all(consumers: list[Consumer], *, for_s: float) -> Counter[str | None]:
    """Poll for a while; the errors that applications see."""
    clock, found = RealClock(), Counter[str | None]()
    until_ms = clock.boot_ms() + round(for_s * 1_000)
    while clock.boot_ms() < until_ms:
        for consumer in consumers:
            message = consumer.poll(0.05)
            if message is not None and (error := message.error()) is not None:
                found[error.name()] += 1
    return found


def consumers_of(server: ServeProcess, count: int) -> list[Consumer]:
    """Consumers with librdkafka's default protocols, subscribed by pattern."""
    config = {"bootstrap.servers": server.kafka, "group.id": "g", "topic.metadata.refresh.interval.ms": 500}
    consumers = [Consumer({**config, "enable.auto.commit": False}) for _ in range(count)]
    for consumer in consumers:
        consumer.subscribe(["^orders-.*"])
    return consumers


def create_topics(server: ServeProcess, numbers: range, partitions: int) -> None:
    topics = [NewTopic(f"orders-{number:05d}-{'x' * 200}", partitions, 1) for number in numbers]
    admin = AdminClient({"bootstrap.servers": server.kafka})
    for created in admin.create_topics(topics).values():
        created.result(30)


def test_a_group_whose_subscriptions_grow_goes_on(tmp_path: Path) -> None:
    limit = ("--set", "groups.members_bytes_max=50000")  # three times 40 topics, and of 80 less than twice as much
    server = ServeProcess(tmp_path, *BROKER_ONLY, *limit)
    with started(server):
        create_topics(server, range(40), 3)
        consumers = consumers_of(server, 3)
        poll_all(consumers, for_s=3)
        assert sum(len(each.assignment()) for each in consumers) == 120
        create_topics(server, range(40, 80), 3)
        assert poll_all(consumers, for_s=5) == {}
        assert [len(each.assignment()) for each in consumers] == [80, 80, 80]
        for each in consumers:
            each.close()


def test_an_application_learns_that_its_assignments_are_too_large(tmp_path: Path) -> None:
    server = ServeProcess(tmp_path, *BROKER_ONLY, "--set", "groups.assignment_bytes_max=1000")
    with started(server):
        create_topics(server, range(2), 200)
        [consumer] = consumers_of(server, 1)
        errors = poll_all([consumer], for_s=5)
        consumer.close()
    assert set(errors) == {"GROUP_MAX_SIZE_REACHED"}
    assert errors.total() < 25  # librdkafka backs off for a while after a failed JoinGroup
    assert "groups.assignment_bytes_max = 1000" in server.log

"""Requests that may wait for a spine have connections of their own, and however many heaps there are, a few."""

from holdfast.heap.model import NewMessage
from holdfast.heap.wire import AckRequest, EnqueueRequest, lane_of


def test_a_client_of_many_heaps_has_a_few_connections() -> None:
    lanes = {lane_of(EnqueueRequest(topic=f"heap-{at}", messages=(NewMessage(payload=b""),))) for at in range(1_000)}
    assert lanes == set(range(1, 17))


def test_acks_wait_for_no_enqueue() -> None:
    assert {lane_of(AckRequest(topic=f"heap-{at}", tokens=())) for at in range(100)} == {0}

"""Requests that may wait have connections of their own, and however many heaps there are, a few."""

from holdfast.heap.model import NewMessage
from holdfast.heap.wire import AckRequest, ConfirmRequest, EnqueueRequest, PlacesRequest, SpineRequest, lane_of


def test_a_client_of_many_heaps_has_a_few_connections() -> None:
    lanes = {lane_of(EnqueueRequest(topic=f"heap-{at}", messages=(NewMessage(payload=b""),))) for at in range(1_000)}
    assert lanes == set(range(1, 17))


def test_acks_wait_for_no_enqueue_and_for_few_other_heaps() -> None:
    assert {lane_of(AckRequest(topic=f"heap-{at}", tokens=())) for at in range(1_000)} == set(range(17, 33))


def test_what_any_node_answers_waits_for_no_partition() -> None:
    lookups = PlacesRequest(topic="jobs"), SpineRequest(topic="jobs"), ConfirmRequest(topic="jobs", action="heap.purge")
    assert {lane_of(each) for each in lookups} == {0}

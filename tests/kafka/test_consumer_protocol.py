"""Subscriptions: topics are read from any version; other bytes are no subscription, and never an error."""

from hypothesis import given
from hypothesis import strategies as st
from tests.support.group import subscription

from holdfast.kafka.consumer_protocol import (
    COMPARED_TOPICS_MAX,
    same_subscription,
    subscription_topics,
    topic_batches,
)


@given(st.lists(st.text(alphabet="abc.-_é", min_size=1, max_size=20)))
def test_the_topics_of_a_subscription_are_read(topics: list[str]) -> None:
    assert subscription_topics(subscription(*topics, owned=b"anything")) == frozenset(topics)


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_a_subscription_or_none(data: bytes) -> None:
    topics = subscription_topics(data)
    assert topics is None or all(isinstance(topic, str) for topic in topics)


def test_a_truncated_subscription_is_none() -> None:
    whole = subscription("orders", "payments")
    cut = whole.index(b"payments") + 3
    assert subscription_topics(whole[:cut]) is None


def test_a_subscription_that_announces_more_topics_than_it_has_bytes_for_is_none() -> None:
    assert subscription_topics(b"\0\0" + (10**9).to_bytes(4) + bytes(100)) is None
    assert subscription_topics(b"\0\0" + (50).to_bytes(4) + bytes(100)) == frozenset({""})
    assert subscription_topics(b"\0\0" + (51).to_bytes(4) + bytes(100)) is None


def test_many_topics_are_read_in_batches() -> None:
    topics = [f"t{number}" for number in range(12_345)]
    batches = list(topic_batches(subscription(*topics)))
    assert [topic for batch in batches for topic in batch] == topics
    assert max(map(len, batches)) <= 5_000


def test_very_many_topics_are_not_read_to_be_compared() -> None:
    most = [f"t{number}" for number in range(COMPARED_TOPICS_MAX)]
    assert same_subscription(subscription(*most, owned=b"0,1"), subscription(*reversed(most)))
    assert same_subscription(subscription(*most, "x"), subscription(*most, "x"))
    assert not same_subscription(subscription(*most, "x", owned=b"0,1"), subscription(*most, "x"))


def test_owned_partitions_do_not_make_another_subscription() -> None:
    assert same_subscription(subscription("orders", owned=b"0,1"), subscription("orders"))
    assert not same_subscription(subscription("orders"), subscription("payments"))
    assert same_subscription(b"?", b"?")
    assert not same_subscription(b"?", b"!")

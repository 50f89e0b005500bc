"""Subscriptions: topics are read from any version; other bytes are no subscription, and never an error."""

from hypothesis import given
from hypothesis import strategies as st
from tests.support.group import subscription

from holdfast.kafka.consumer_protocol import group_subscription_topics, same_subscription, subscription_topics


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


def test_a_group_has_the_topics_of_all_its_members() -> None:
    both = [subscription("orders"), subscription("payments", "orders")]
    assert group_subscription_topics("consumer", both) == frozenset({"orders", "payments"})
    assert group_subscription_topics("connect", both) is None
    assert group_subscription_topics("consumer", [*both, b"?"]) is None


def test_owned_partitions_do_not_make_another_subscription() -> None:
    assert same_subscription(subscription("orders", owned=b"0,1"), subscription("orders"))
    assert not same_subscription(subscription("orders"), subscription("payments"))
    assert same_subscription(b"?", b"?")
    assert not same_subscription(b"?", b"!")

"""Which limit counts, how much was taken, and how long to wait: all without a clock of their own."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.waiting import async_until

from holdfast.agent.client_quotas import watching_client_quotas
from holdfast.contracts.validation import StoreLimits
from holdfast.security.client_quotas import DEFAULT, Quota, QuotaEntity, QuotaTable, check_limit
from holdfast.security.leaky_bucket import BURST_MS, LeakyBucket
from holdfast.security.quota_store import QuotaStore, quota_key
from holdfast.stores.memory import MemoryStore
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import SeededRandom

PRODUCE, FETCH = Quota.PRODUCE, Quota.FETCH
# Kafka's order, the most specific first, and who shares the limit.
ORDER = [
    (QuotaEntity("ann", "app"), QuotaEntity("ann", "app")),
    (QuotaEntity("ann", DEFAULT), QuotaEntity("ann", "app")),
    (QuotaEntity("ann", None), QuotaEntity("ann", None)),
    (QuotaEntity(DEFAULT, "app"), QuotaEntity("ann", "app")),
    (QuotaEntity(DEFAULT, DEFAULT), QuotaEntity("ann", "app")),
    (QuotaEntity(DEFAULT, None), QuotaEntity("ann", None)),
    (QuotaEntity(None, "app"), QuotaEntity(None, "app")),
    (QuotaEntity(None, DEFAULT), QuotaEntity(None, "app")),
]


def test_the_most_specific_limit_counts_in_kafkas_order() -> None:
    for at in range(len(ORDER)):
        table = QuotaTable({entity: {PRODUCE: number + 1} for number, (entity, _) in list(enumerate(ORDER))[at:]})
        assert table.limit(PRODUCE, "ann", "app") == (at + 1, ORDER[at][1])
    assert QuotaTable().limit(PRODUCE, "ann", "app") is None


def test_each_kind_of_quota_is_looked_up_by_itself() -> None:
    table = QuotaTable({QuotaEntity("ann", "app"): {PRODUCE: 1}, QuotaEntity("ann"): {FETCH: 2, PRODUCE: 3}})
    assert table.limit(PRODUCE, "ann", "app") == (1, QuotaEntity("ann", "app"))
    assert table.limit(FETCH, "ann", "app") == (2, QuotaEntity("ann"))
    assert table.limit(FETCH, "bob", "app") is None


def test_ten_seconds_worth_is_free_and_what_is_beyond_is_waited_for() -> None:
    bucket = LeakyBucket()
    assert bucket.take(10_000, 1_000, 0) == 0
    assert bucket.take(500, 1_000, 0) == 500
    assert bucket.take(0, 1_000, 500) == 0
    assert bucket.take(1, 1_000, 500) == 1


def test_a_limit_that_changes_counts_for_what_was_taken_before() -> None:
    bucket = LeakyBucket()
    bucket.take(20_000, 1_000, 0)
    assert bucket.take(0, 2_000, 0) == 0
    assert bucket.take(0, 500, 0) == 30_000


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 100_000), st.integers(0, 5_000)), max_size=30), st.integers(100, 10_000))
def test_whoever_waits_as_told_keeps_to_the_limit(takes: list[tuple[int, int]], limit: int) -> None:
    bucket, now_ms, taken = LeakyBucket(), 1, 0
    for amount, idle_ms in takes:
        now_ms += bucket.take(amount, limit, now_ms)
        taken += amount
        assert taken <= limit * (now_ms + BURST_MS) / 1_000
        now_ms += idle_ms


@pytest.mark.parametrize(
    ("quota", "value"),
    [(PRODUCE, 0), (PRODUCE, -1), (PRODUCE, 1.5), (FETCH, float("nan")), (FETCH, float("inf")), (Quota.REQUEST, 0)],
)
def test_a_limit_that_means_nothing_is_refused(quota: Quota, value: float) -> None:
    with pytest.raises(InvalidError, match=str(quota)):
        check_limit(quota, value)
    check_limit(Quota.REQUEST, 0.5)


async def test_limits_are_kept_by_entity_and_seen_by_whoever_watches() -> None:
    clock, random = RealClock(), SeededRandom(1)
    store = MemoryStore(clock=clock, random=random, limits=StoreLimits())
    quotas = QuotaStore(store, clock=clock, random=random)
    entities = [QuotaEntity("a/b ü", "c=*"), QuotaEntity("*", "-"), *(entity for entity, _ in ORDER)]
    addresses = {
        QuotaEntity(ip=DEFAULT): {Quota.CONNECTIONS: 5.0},
        QuotaEntity(ip="2001:db8::1"): {Quota.CONNECTIONS: 7.0},
    }
    assert len({quota_key(each) for each in entities}) == len(entities)
    async with watching_client_quotas(store, clock=clock, random=random) as watched:
        assert not watched.any
        for number, entity in enumerate(entities):
            await watched.seen(await quotas.alter(entity, {PRODUCE: number + 1.0}))
        assert await quotas.quotas() == {entity: {PRODUCE: number + 1} for number, entity in enumerate(entities)}
        await quotas.alter(entities[0], {FETCH: 7})
        assert (await quotas.quotas())[entities[0]] == {PRODUCE: 1, FETCH: 7}
        assert await quotas.alter(entities[0], {FETCH: 7}) == 0
        assert await quotas.alter(entities[0], {FETCH: 9}, validate_only=True) == 0
        for entity in entities:
            await quotas.alter(entity, {PRODUCE: None, FETCH: None})
        for entity, limits in addresses.items():
            await watched.seen(await quotas.alter(entity, limits))
        assert await quotas.quotas() == addresses
        assert watched.table.connection_rate("10.0.0.1") == ("10.0.0.1", 5)
        for entity in addresses:
            await quotas.alter(entity, dict.fromkeys(Quota))
        assert await quotas.quotas() == {}
        await async_until(lambda: not watched.any)
    with pytest.raises(InvalidError, match="nobody"):
        await quotas.alter(QuotaEntity(), {PRODUCE: 1})

"""Restarts with many partitions: what an agent looks at before it serves must not take longer than its session lives."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from tests.support.cluster import SHORT_SESSION, LocalCluster
from tests.support.partitions import batch
from tests.support.waiting import async_until

T = TypeVar("T")


def slow_reads(cluster: LocalCluster, delay_ms: int) -> None:
    """Every read of the store takes so long; others overlap with it."""

    def slowed(read: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
        async def slow(*args: object, **kwargs: object) -> T:
            await cluster.clock.sleep_ms(delay_ms)
            return await read(*args, **kwargs)

        return slow

    cluster.store.get = slowed(cluster.store.get)  # type: ignore[method-assign,assignment]
    cluster.store.scan = slowed(cluster.store.scan)  # type: ignore[method-assign,assignment]


@pytest.mark.slow
async def test_the_look_at_what_is_left_in_the_wal_does_not_outlast_the_session(cluster: LocalCluster) -> None:
    ann = await cluster.node("ann")
    await ann.service.create_topic("orders", 80)
    await async_until(lambda: len(ann.leads()) == 80)
    for partition in range(80):
        await ann.service.produce("orders", partition, batch("a"))
    await ann.drop()
    slow_reads(cluster, 25)  # one by one, that is 2 s; the session lives for 1.5
    again = await cluster.node("ann", session=SHORT_SESSION)
    await async_until(lambda: len(again.leads()) == 80, within_s=10, what=lambda: f"{len(again.leads())} led")
    assert again.agent.counters.sessions_lost == 0
    for partition in (0, 79):
        assert await cluster.read("orders", partition) == [(0, "a")]

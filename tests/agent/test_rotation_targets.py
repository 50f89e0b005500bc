"""The next leaders that partitions ask for count while their topic rotates, and no longer."""

from pathlib import Path

import msgspec
from tests.support.cluster import LocalCluster
from tests.support.waiting import async_until

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.store import Put
from holdfast.kernel.keys import rotation_key
from holdfast.log.rotation.record import RotationRecord
from holdfast.log.topics import Topics


async def test_rotation_switched_off_while_nobody_leads_pins_no_partition(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path)
    topics = Topics(cluster.store, clock=cluster.clock, random=cluster.random)
    try:
        config = {"rotation_entries": 10, "durability": "object"}
        topic = await topics.create("orders", 2, config)
        asked = msgspec.json.encode(RotationRecord(topic_id=topic.id, segment=2, target="ann"))
        keys = [rotation_key(f"partition/orders/{number:05d}") for number in range(2)]
        await commit_resolved(
            cluster.store, clock=cluster.clock, random=cluster.random, apply=[Put(key, asked) for key in keys]
        )
        ann, bob = await cluster.node("ann"), await cluster.node("bob")
        await async_until(lambda: ann.leads() == {0, 1})
        await bob.drop()
        await ann.drop()
        await topics.alter("orders", {"rotation_entries": 0})
        ann, bob = await cluster.node("ann"), await cluster.node("bob")
        await async_until(lambda: len(ann.leads()) == len(bob.leads()) == 1)
    finally:
        await cluster.end()

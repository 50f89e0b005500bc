"""A reader in another zone: what is published it reads from an agent of its own zone, the rest from the leader."""

import asyncio
from pathlib import Path
from typing import Any

from tests.support.cluster import LocalCluster
from tests.support.kafka_wire import FETCH, KafkaGateway, WireClient, fetch_request, gateway_of
from tests.support.partitions import records
from tests.support.waiting import async_until

from holdfast.gateways.kafka.settings import KafkaSettings
from holdfast.kafka.error_codes import ErrorCode
from holdfast.log.partition.leading_partition import LeadingPartition

NOBODY = -1


async def test_a_reader_is_sent_to_its_own_zone_and_back_where_the_published_part_ends(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path)
    try:
        async with (
            asyncio.timeout(60),
            gateway_of(cluster, "ann", KafkaSettings(), zone="a") as ann,
            gateway_of(cluster, "bob", KafkaSettings(), zone="b") as bob,
        ):
            await ann.backend.log.create_topic("orders", 2)
            await async_until(lambda: ann.node.leads() and bob.node.leads())
            near, far = (await ann.client()), (await bob.client())
            (number,) = ann.node.leads()
            led = ann.backend.log._serving("orders", number)
            assert led is not None
            for value in ("one", "two"):
                await cluster.produce("orders", number, value)
                await ann.backend.log.flush("orders", number)
            await _check(near, far, bob, number, led)
    finally:
        await cluster.end()


async def _check(near: WireClient, far: WireClient, bob: KafkaGateway, number: int, led: LeadingPartition) -> None:
    me = bob.backend.me()
    assert me is not None
    for version in (11, 12):
        # From its own zone, or from nowhere in particular: the leader answers.
        for rack in ("a", "", "nobody is there"):
            found = await _read(near, version, number, 0, rack)
            assert (found.preferred_read_replica, _values(found)) == (NOBODY, ["one", "two"])
        # From the other zone: it is sent there, and served there.
        sent = await _read(near, version, number, 0, "b")
        assert (sent.preferred_read_replica, _values(sent), sent.error_code.value) == (me.node, [], ErrorCode.NONE)
        assert _values(await _read(far, version, number, 1, "b")) == ["two"]
        # Beyond what is published only the leader can say anything; and nobody is served who did not say where he is.
        for offset, rack in ((2, "b"), (0, ""), (0, "a")):
            refused = await _read(far, version, number, offset, rack)
            assert refused.error_code.value == ErrorCode.NOT_LEADER_OR_FOLLOWER
        back = await _read(near, version, number, led.high_watermark, "b")
        assert (back.preferred_read_replica, back.error_code.value) == (NOBODY, ErrorCode.NONE)


async def _read(client: WireClient, version: int, number: int, offset: int, rack: str) -> Any:
    answer = await client.ask(FETCH, version, fetch_request("orders", {number: offset}, rack=rack))
    return answer.responses[0].partitions[0]


def _values(found: Any) -> list[str]:
    return [value for _, value in records([bytes(found.records)])] if found.records else []

"""docs/how-to/lost-disk.md: its commands bring a compacted topic back whose leader's disk is gone, and lose nothing published."""

import asyncio
import os
import sys
from pathlib import Path

import pytest
from tests.docs.test_snippets import SNIPPETS
from tests.support.cluster import LocalCluster
from tests.support.kafka_wire import gateway_of
from tests.support.waiting import async_until

from holdfast.gateways.kafka.settings import KafkaSettings
from holdfast.log.batches import Record, decode, encode

COMMANDS = [each.code for each in SNIPPETS if each.page == "docs/how-to/lost-disk.md"]


def record(key: bytes, value: bytes) -> bytes:
    return encode([Record(0, 1_000, key, value)])  # long ago: any retention would take it


async def run(command: str, port: int) -> None:
    environment = {**os.environ, "HOLDFAST_BOOTSTRAP": f"127.0.0.1:{port}"}  # noqa: TID251 - what a child process is given
    script = f'holdfast() {{ "{sys.executable}" -m holdfast "$@"; }}\n{command}'
    shell = await asyncio.create_subprocess_exec("sh", "-ec", script, env=environment)
    assert await shell.wait() == 0


@pytest.mark.slow
async def test_a_compacted_topic_goes_on_after_the_disk_of_its_leader_is_lost(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path)
    try:
        async with gateway_of(cluster, "ann", KafkaSettings()) as ann:
            service = ann.node.service
            await service.create_topic("profiles", 1, {"cleanup_policy": "compact"})
            await async_until(lambda: ann.node.leads() == {0})
            await service.produce("profiles", 0, record(b"a", b"published"))
            await service.flush("profiles", 0)
            await service.produce("profiles", 0, record(b"b", b"only on ann's disk"))
            await ann.node.drop()
        async with gateway_of(cluster, "bob", KafkaSettings()) as bob:
            await async_until(lambda: bob.node.agent.offline)
            for command in COMMANDS:
                await run(command, bob.port)
            service = bob.node.service
            assert (await service.topics.get("profiles")).overrides == {"cleanup_policy": "compact"}
            after = await service.produce("profiles", 0, record(b"c", b"after"))
            fetched = await service.fetch("profiles", 0, 0)
            found = [each.value for batch in fetched.batches for each in decode(batch)]
            if len(found) == 1:  # the rest lies behind the gap
                fetched = await service.fetch("profiles", 0, after.base_offset)
                found += [each.value for batch in fetched.batches for each in decode(batch)]
            assert found == [b"published", b"after"]
            assert after.base_offset > 1
    finally:
        await cluster.end()

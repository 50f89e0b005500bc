"""A member of a consumer group that runs aiokafka, as a process: `python aiokafka_member.py SETTINGS`, the settings as JSON.

Its output is that of `group_members`. Polling and committing happen under a lock that a revocation waits for: otherwise a
rebalance between the two would rewind the position and the client itself would read records again.
"""

import asyncio
import json
import signal
import sys
from collections.abc import Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import IllegalStateError, KafkaError
from tests.support.clients.events import say

from holdfast.vocabulary.clock import RealClock

CLOCK = RealClock()

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self) -> None:
        self.working = asyncio.Lock()
        self.held: set[TopicPartition] = set()

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        async with self.working:
            say("revoked", partitions=sorted(each.partition for each in self.held))
            self.held = set()

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self.held = set(assigned)
        say("assigned", partitions=sorted(each.partition for each in self.held))


async def work(consumer: AIOKafkaConsumer, settings: dict[str, Any], turn: int) -> int:
    """Read some and commit them; returns how often there was something to commit."""
    polled = await consumer.getmany(timeout_ms=100, max_records=20)
    records = [record for partition in polled.values() for record in partition]
    if not records:
        return turn
    say("committing", values=[record.value.decode() for record in records])
    if turn + 1 == settings.get("hold_at"):
        say("holding")
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    try:
        await consumer.commit({partition: some[-1].offset + 1 for partition, some in polled.items() if some})
    except (KafkaError, IllegalStateError) as refusal:
        say("refused", error=type(refusal).__name__)
    else:
        say("committed")
    return turn + 1


async def main(settings: dict[str, Any]) -> None:
    leaving = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leaving.set)
    listener = Listener()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=settings["bootstrap"],
        group_id=settings["group"],
        group_instance_id=settings.get("instance"),
        session_timeout_ms=settings["session_ms"],
        heartbeat_interval_ms=300,
        max_poll_interval_ms=60_000,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        partition_assignment_strategy=[ASSIGNORS[settings.get("assignor", "range")]],
        request_timeout_ms=10_000,
        metadata_max_age_ms=1_000,
    )
    consumer.subscribe([settings["topic"]], listener=listener)
    await consumer.start()
    turn = 0
    try:
        while not leaving.is_set():
            async with listener.working:
                if listener.held:
                    turn = await work(consumer, settings, turn)
            await CLOCK.sleep_ms(1 if listener.held else 20)
    finally:
        await consumer.stop()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))

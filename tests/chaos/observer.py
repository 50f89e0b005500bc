"""The observer: asks every agent who leads what, and every leader where its partitions end, by hand, so that epochs are seen."""

import asyncio
from typing import Any, Final

from tests.chaos.history import Recorder
from tests.support.kafka_wire import WireClient

from holdfast.kafka.api_keys import ApiKey
from holdfast.vocabulary.clock import RealClock

NAME: Final = "observer"
PERIOD_MS: Final = 300
ANSWER_S: Final = 3
LATEST: Final = -1
METADATA_VERSION: Final = 9
LIST_OFFSETS_VERSION: Final = 5


class Observer:
    """Asks again and again. `ports`: where the agents are."""

    def __init__(self, ports: list[int], topic: str, *, record: Recorder) -> None:
        self._ports, self._topic, self._record = ports, topic, record
        self._clients: dict[int, WireClient] = {}
        record(NAME, "ok", "begin", kind="observer")

    async def run(self) -> None:
        """Until it is cancelled."""
        clock = RealClock()
        try:
            while True:
                await asyncio.gather(*(self._observe(port) for port in self._ports))
                await clock.sleep_ms(PERIOD_MS)
        finally:
            for client in self._clients.values():
                client.close()

    async def _observe(self, port: int) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                if port not in self._clients:
                    self._clients[port] = WireClient(*await asyncio.open_connection("127.0.0.1", port))
                await self._ask(port, self._clients[port])
        except (OSError, EOFError, TimeoutError):
            if (client := self._clients.pop(port, None)) is not None:
                client.close()

    async def _ask(self, port: int, client: WireClient) -> None:
        asked = {"topics": [{"name": self._topic}], "allow_auto_topic_creation": False}
        found = await client.ask(ApiKey.METADATA, METADATA_VERSION, asked)
        nodes = {broker.node_id: broker.port for broker in found.brokers}
        for topic in found.topics:
            for each in topic.partitions:
                if each.leader_id >= 0:
                    number, epoch = each.partition_index, each.leader_epoch
                    self._record(NAME, "ok", "lead", partition=number, leader=each.leader_id, epoch=epoch, by=port)
                    if nodes.get(each.leader_id) == port:
                        await self._ask_end(client, number, port)

    async def _ask_end(self, client: WireClient, number: int, port: int) -> None:
        process = f"{NAME}-{port}"
        self._record(process, "invoke", "end", partition=number)
        partition = {"partition_index": number, "current_leader_epoch": -1, "timestamp": LATEST}
        asked: dict[str, Any] = {"replica_id": -1, "isolation_level": 0}
        asked["topics"] = [{"name": self._topic, "partitions": [partition]}]
        found = await client.ask(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, asked)
        answer = found.topics[0].partitions[0]
        if answer.error_code == 0:
            self._record(process, "ok", "end", partition=number, epoch=answer.leader_epoch, end=answer.offset)
        else:
            self._record(process, "fail", "end", partition=number, error=int(answer.error_code))

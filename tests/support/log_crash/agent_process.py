"""A life of the real agent: planner, follower, publishing loop, upkeep and all; producers and readers call its service."""

import argparse
from collections.abc import Callable, Sequence
from typing import Final

from tests.support.log_crash.clients import OVER, Clients
from tests.support.log_crash.history import History
from tests.support.log_crash.kill_points import Steps
from tests.support.log_crash.settings import LOG, UPKEEP, WAL_FILE_BYTES

from holdfast.agent import Agent, AgentSettings, running_agent
from holdfast.contracts.objects import Objects
from holdfast.contracts.store import Store
from holdfast.kernel.membership import MembershipSettings
from holdfast.kernel.plan_executor import PlanExecutorSettings
from holdfast.kernel.planner import PlannerSettings
from holdfast.kernel.session import SessionSettings
from holdfast.log.errors import NotLeaderError
from holdfast.log.reader import FetchedBatches
from holdfast.log.topics import UnknownTopicError
from holdfast.log.wal import WalSettings
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError, UnavailableError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import background_tasks

# Partition number in the history → topic and its partition.
PARTITIONS: Final = (("near", 0), ("near", 1), ("far", 0))
TOPICS: Final[dict[str, tuple[int, dict[str, object]]]] = {
    "near": (2, {"durability": "local", "roll_ms": 100}),
    "far": (1, {"durability": "object"}),
}


def settings_of(told: argparse.Namespace) -> AgentSettings:
    """An agent that does in milliseconds what others do in seconds."""
    return AgentSettings(
        id=told.agent,
        open_retry_ms=50,
        idle_ms=300,
        rejoin_ms=50,
        publish_backoff_max_ms=200,
        session=SessionSettings(ttl_ms=told.ttl_ms, renew_ms=told.ttl_ms // 4, margin_ms=told.ttl_ms // 10, stall_ms=0),
        membership=MembershipSettings(wait_for_id_ms=5_000),
        planner=PlannerSettings(settle_ms=5, tick_ms=500),
        follower=PlanExecutorSettings(tick_ms=500, transfer_timeout_ms=2_000, retry_ms=20),
        log=LOG,
        upkeep=UPKEEP,
        wal=WalSettings(file_bytes=WAL_FILE_BYTES, files_spare_max=told.spares),
    )


class Served:
    """The log as the agent's service gives it."""

    numbers: Sequence[int] = range(len(PARTITIONS))

    def __init__(self, agent: Agent) -> None:
        self._service = agent.service

    async def append(self, number: int, payload: bytes) -> tuple[int, int]:
        topic, partition = PARTITIONS[number]
        try:
            produced = await self._service.produce(topic, partition, payload)
        except (NotLeaderError, UnknownTopicError, *OVER) as error:
            raise UnavailableError("agent", str(error)) from error  # it comes back by itself; idempotence does the rest
        return produced.base_offset, produced.end_offset

    async def fetch(self, number: int, offset: int, *, wait_ms: float) -> FetchedBatches:
        topic, partition = PARTITIONS[number]
        try:
            return await self._service.fetch(topic, partition, offset, bytes_max=8_192, wait_ms=wait_ms)
        except (NotLeaderError, UnknownTopicError, *OVER) as error:
            raise UnavailableError("agent", str(error)) from error


async def live_whole(
    told: argparse.Namespace,
    *,
    store: Store,
    objects: Objects,
    clock: Clock,
    random: Random,
    steps: Steps,
    say: Callable[[str], None],
    history: History,
) -> None:
    """The life."""
    async with running_agent(
        settings_of(told), told.folder / f"wal-{told.agent}", store=store, objects=objects, clock=clock, random=random
    ) as agent:
        for name, (partitions, config) in TOPICS.items():
            if not history.said("opened"):
                try:
                    await agent.service.create_topic(name, partitions, config)
                except InvalidError:
                    say(f"known {name}")  # an earlier life came so far
        await _until_leading(agent, clock, say)
        clients = Clients(
            agent=told.agent, quota=told.quota, log=Served(agent), say=say, steps=steps, history=history, clock=clock, random=random
        )  # fmt: skip
        if told.read:
            await clients.read_everything()
            agent.sessions.graceful = False
            return
        async with background_tasks(*clients.readers()):
            await clients.produce()
        steps("closing")


async def _until_leading(agent: Agent, clock: Clock, say: Callable[[str], None]) -> None:
    """Wait until the agent leads everything; say from where on."""
    for number, (topic, partition) in enumerate(PARTITIONS):
        while True:
            try:
                led = await agent.service._led(topic, partition)
                break
            except (NotLeaderError, UnknownTopicError, UnavailableError):
                await clock.sleep_ms(5)
        if number == 0 and agent.member is not None:
            say(f"session {agent.settings.id} {agent.member.session}")
        say(f"opened {agent.settings.id} {number} {led.lease.epoch} {led.next_offset} {led.high_watermark}")

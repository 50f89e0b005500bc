"""StreamHouse's end to end, without containers: PostgreSQL, S3, a server without an agent, and agents in two zones.

A topic is created, placed and written through the server that leads nothing. Agents come, one is killed, and all is read back.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.object_engines import NewObjectsHarness
from tests.support.object_engines import serving as serving_objects
from tests.support.server_process import (
    BROKER_ONLY,
    SHORT_SESSIONS,
    ServeProcess,
    create_topic,
    leaders,
    produce,
    read,
    started,
)
from tests.support.waiting import until

from holdfast.testing.harness import StoreHarness

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

PARTITIONS = 6


@pytest.fixture(scope="module")
def new_objects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NewObjectsHarness]:
    with serving_objects("moto", tmp_path_factory.mktemp("moto")) as harnesses:
        yield harnesses


@pytest_asyncio.fixture
async def objects_url(new_objects: NewObjectsHarness) -> AsyncIterator[str]:
    async with new_objects() as harness:
        yield harness.url


def loads(bootstrap: str) -> list[int]:
    """How many partitions each leader has, the most first."""
    return sorted(Counter(leader for leader in leaders(bootstrap, "orders").values() if leader != -1).values())[::-1]


@pytest.mark.parametrize("engine", ["postgres"])
async def test_a_cluster_grows_loses_an_agent_and_loses_no_record(
    harness: StoreHarness, objects_url: str, tmp_path: Path
) -> None:
    shared = ("--store", harness.url, "--objects", objects_url, *SHORT_SESSIONS)
    entry = ServeProcess(tmp_path / "entry", "--http", "off", *shared, env={"DISABLE_EMBEDDED_AGENT": "1"})
    agents = [
        ServeProcess(tmp_path / name, *BROKER_ONLY, *shared, "--agent-id", name, "--zone", zone)
        for name, zone in (("one", "a"), ("two", "b"), ("three", "a"), ("four", "b"))
    ]
    await asyncio.to_thread(grow_and_lose_one, entry, agents)


def grow_and_lose_one(entry: ServeProcess, agents: Sequence[ServeProcess]) -> None:
    with started(entry, *agents[:2]), ExitStack() as later:
        create_topic(entry.kafka, "orders", PARTITIONS, holdfast_durability="object")
        until(lambda: loads(entry.kafka) == [3, 3], what="two agents have three each")
        for number in range(PARTITIONS):
            produce(entry.kafka, "orders", f"{number}-a", partition=number)
        later.enter_context(started(agents[2]))
        until(lambda: loads(entry.kafka) == [2, 2, 2], what="three agents have two each")
        later.enter_context(started(agents[3]))
        until(lambda: loads(entry.kafka) == [2, 2, 1, 1], what="four agents have two or one each")
        for number in range(PARTITIONS):
            produce(entry.kafka, "orders", f"{number}-b", partition=number)
        before = leaders(entry.kafka, "orders")
        killed = int(agents[0].out.partition(", node ")[2].partition(" ")[0])
        agents[0].kill()
        until(lambda: loads(entry.kafka) == [2, 2, 2], what="three agents have two each again")
        after = leaders(entry.kafka, "orders")
        moved = {number for number in before if before[number] != after[number]}
        assert moved == {number for number, leader in before.items() if leader == killed}
        for number in range(PARTITIONS):
            produce(entry.kafka, "orders", f"{number}-c", partition=number)
            assert read(entry.kafka, "orders", 3, partition=number) == [f"{number}-a", f"{number}-b", f"{number}-c"]

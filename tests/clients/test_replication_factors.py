"""Replication factors as clients and tools ask for them and see them, on a cluster of three brokers."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.support.clients.java import runner
from tests.support.kafka_python_import import KafkaAdminClient
from tests.support.replicas import admins_of
from tests.support.server_process import produce, read
from tests.support.waiting import async_until

from holdfast.kafka.error_codes import ErrorCode
from holdfast.vocabulary.errors import UnavailableError

TIMEOUT_S = 20
AGENTS = ("ann", "bob", "cat")

Replicas = list[tuple[set[int], set[int]]]  # of each partition: replicas, in sync


def librdkafka(bootstrap: str) -> tuple[Callable[[str, int], str], Callable[[str], Replicas]]:
    """Creating a topic with a factor (the refusal, or nothing), and its replicas."""
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(topic: str, factor: int) -> str:
        made = admin.create_topics([NewTopic(topic, 2, factor)], operation_timeout=0)[topic]
        refused = made.exception(TIMEOUT_S)
        return "" if refused is None else f"{refused.args[0].name()}: {refused.args[0].str()}"

    def replicas(topic: str) -> Replicas:
        found = admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
        return [({*found[number].replicas}, {*found[number].isrs}) for number in sorted(found)]

    return create, replicas


def kafka_python(bootstrap: str) -> tuple[Callable[[str, int], str], Callable[[str], Replicas]]:
    def create(topic: str, factor: int) -> str:
        with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
            told = {topic: {"num_partitions": 2, "replication_factor": factor}}
            (made,) = admin.create_topics(told, raise_errors=False)["topics"]
            code = ErrorCode(made["error_code"])
            return "" if code is ErrorCode.NONE else f"{code.name}: {made['error_message']}"

    def replicas(topic: str) -> Replicas:
        with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
            (found,) = admin.describe_topics([topic])
            by_number = {each["partition_index"]: each for each in found["partitions"]}
            return [
                ({*by_number[number]["replica_nodes"]}, {*by_number[number]["isr_nodes"]})
                for number in sorted(by_number)
            ]

    return create, replicas


@pytest.mark.parametrize("client", [librdkafka, kafka_python])
async def test_a_topic_of_three_replicas_is_created_and_described(tmp_path: Path, client: Any) -> None:
    async with asyncio.timeout(120), admins_of(tmp_path, *AGENTS) as admins:
        create, replicas = client(f"127.0.0.1:{admins[0].gateway.port}")
        assert await asyncio.to_thread(create, "orders", 3) == ""
        refused = await asyncio.to_thread(create, "more", 4)
        assert refused.startswith("INVALID_REPLICATION_FACTOR: invalid replication factor 4: must be between 1 and 3")
        nodes = {admin.node for admin in admins}

        async def served_by_all() -> bool:
            seen: Replicas = await asyncio.to_thread(replicas, "orders")
            return seen == [(nodes, nodes)] * 2

        await async_until(served_by_all)


@pytest.fixture(scope="module")
def tools() -> Iterator[runner.Tools]:
    try:
        started = runner.Tools()
    except UnavailableError as missing:
        pytest.skip(str(missing))
    yield started
    started.close()


@pytest.mark.timeout(300)
@pytest.mark.xdist_group("java")
async def test_kafkas_tools_create_reassign_and_elect(tmp_path: Path, tools: runner.Tools) -> None:
    async with asyncio.timeout(240), admins_of(tmp_path / "agents", *AGENTS) as admins:
        nodes = [admin.node for admin in admins]
        bootstrap, written = f"127.0.0.1:{admins[0].gateway.port}", list[str]()

        async def tool(name: str, *args: str) -> str:
            done = await asyncio.to_thread(tools.run, name, "--bootstrap-server", bootstrap, *args)
            return done.stdout + done.stderr

        async def described() -> list[tuple[str, str]]:
            shown = await tool("TopicCommand", "--describe", "--topic", "orders")
            return re.findall(r"Replicas: (\S+)\s+Isr: (\S+)", shown)

        made = await tool(
            "TopicCommand", "--create", "--topic", "orders", "--replication-factor", "2", "--partitions", "2"
        )
        assert "Created topic orders" in made, made

        async def served_by_two() -> bool:
            return [(len(replicas.split(",")), len(isr.split(","))) for replicas, isr in await described()] == [
                (2, 2)
            ] * 2

        await async_until(served_by_two)

        async def write(*values: str) -> None:
            for number in (0, 1):
                await asyncio.to_thread(produce, bootstrap, "orders", *values, partition=number)
            written.extend(values)

        async def reassigned(*replicas: Sequence[int]) -> tuple[str, ...]:
            """The options of a reassignment of all partitions."""
            wanted = [
                {"topic": "orders", "partition": number, "replicas": [*each]} for number, each in enumerate(replicas)
            ]
            file = tmp_path / "reassignment.json"
            file.write_text(json.dumps({"version": 1, "partitions": wanted}))
            return "--reassignment-json-file", str(file)

        # To three replicas, to other two, and back to one: under way until the leader has opened it with them.
        for targets in ([nodes, nodes[::-1]], [[nodes[2], nodes[0]], [nodes[1], nodes[2]]], [[nodes[1]], [nodes[0]]]):
            await write(f"before {targets}")
            told = await reassigned(*targets)
            started = await tool("ReassignPartitionsCommand", *told, "--execute", "--throttle", "50000000")
            assert "Successfully started partition reassignments for orders-0,orders-1" in started, started
            await write(f"while {targets} is under way")

            async def completed(told: tuple[str, ...] = told) -> bool:
                shown = await tool("ReassignPartitionsCommand", *told, "--verify")
                return len(re.findall(r"Reassignment of partition orders-\d is completed", shown)) == 2

            async def shown_to_clients(targets: Sequence[Sequence[int]] = targets) -> bool:
                found = [{*map(int, replicas.split(","))} for replicas, _ in await described()]
                return found == [{*each} for each in targets]

            await async_until(completed)
            await async_until(shown_to_clients)  # Metadata lags behind the store a little
        for number in (0, 1):
            assert await asyncio.to_thread(read, bootstrap, "orders", len(written), partition=number) == written
        elected = await tool(
            "LeaderElectionCommand", "--election-type", "PREFERRED", "--topic", "orders", "--partition", "0"
        )
        assert "Valid replica already elected for partitions orders-0" in elected, elected
        assert "There are no" not in elected
        everywhere = await tool("LeaderElectionCommand", "--election-type", "PREFERRED", "--all-topic-partitions")
        assert "Error" not in everywhere, everywhere
        nothing = await tool("ReassignPartitionsCommand", "--list")
        assert "No partition reassignments found." in nothing

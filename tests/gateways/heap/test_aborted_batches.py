"""A batch that meets another one that is not decided: ABORTED over gRPC, 409 over HTTP, nothing enqueued, free afterwards."""

from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.support.grpc_gateway import grpc_cluster
from tests.support.heap_batches import batch_over, prepare_of
from tests.support.http_gateway import problem_of, running_http_gateway
from tests.support.waiting import async_until

from holdfast.gateways.heap.calls import HeapBackend, HeapCalls
from holdfast.heap.batch.coordinator import BatchCoordinator
from holdfast.v1 import heap_service_pb2 as pb
from holdfast.v1.heap_service_pb2_grpc import HeapServiceStub


async def test_a_batch_is_aborted_while_another_with_the_same_number_is_undecided(tmp_path: Path) -> None:
    async with grpc_cluster(tmp_path) as world:
        node, cluster = world.node, world.cluster
        calls = HeapCalls(
            HeapBackend(heaps=node.agent.heaps, cluster=node.agent.cluster, clock=cluster.clock, random=cluster.random)
        )
        await node.agent.heaps.administration.create("jobs", 2)
        await async_until(lambda: all(node.agent.heaps.serves("jobs", number) for number in range(2)))
        views = {which.number: view for which, view in node.agent.local_heaps.open.items() if which.topic == "jobs"}
        batches = node.agent.local_heaps.batches
        assert batches is not None
        undecided = BatchCoordinator(views[0].log.partition_id.topic_id, "b", [0, 1])
        batches._coordinating["b"] = undecided  # it may still be committed: nobody ends it
        messages = batch_over(2)
        await views[1].prepare(prepare_of("b", views[0], 2, messages[1]))
        body: dict[str, Any] = {"topic": "jobs", "messages": []}
        request = pb.EnqueueBatchRequest()
        for each in messages:
            assert each.producer is not None
            numbers = {"producer_id": "p", "epoch": 0, "sequence": each.producer.sequence}
            body["messages"].append({"payload": "x", "partition_key": each.partition_key, **numbers})
            request.requests.add(topic="jobs", payload=b"x", partition_key=each.partition_key, **numbers)
        stub: Any = HeapServiceStub((await world.gateway()).channel)
        async with running_http_gateway(heaps=calls, store=cluster.store) as gateway:
            problem_of(await gateway.client.post("/v1/enqueue:batch", json=body), 409, "batch-aborted")
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await stub.EnqueueBatch(request)
            assert raised.value.code() is grpc.StatusCode.ABORTED
            assert [view.state.counters.enqueued for view in views.values()] == [0, 0]
            undecided.abort()
            del batches._coordinating["b"]
            await async_until(lambda: not views[1].state.reserved.prepared)
            enqueued = await stub.EnqueueBatch(request)
            assert [each.duplicate for each in enqueued.responses] == [False, False]
            again = await gateway.client.post("/v1/enqueue:batch", json=body)
            assert [each["duplicate"] for each in again.json()["results"]] == [True, True]
        calls.close()

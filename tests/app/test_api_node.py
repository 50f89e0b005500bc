"""A node without an agent: it knows where heaps are served."""

from pathlib import Path

from tests.support.replicas import admins_of
from tests.support.waiting import async_until

from holdfast.app.api_node import running_api_node
from holdfast.app.config import ServeSettings
from holdfast.gateways.heap.calls import HeapBackend, HeapCalls
from holdfast.heap.wire import SpineRequest
from holdfast.kernel.objects_owner import claim_objects


async def test_it_knows_where_the_spine_of_a_heap_is(tmp_path: Path) -> None:
    settings = ServeSettings(data=tmp_path, store="memory", objects="memory", roles=("api",))
    async with admins_of(tmp_path, "ann", "bob") as [ann, _]:
        world, agent = ann.gateway.cluster, ann.backend.heaps
        assert agent is not None
        store, objects, clock, random = world.store, world.objects, world.clock, world.random
        owner = await claim_objects(store, objects, clock=clock, random=random, place="memory")
        async with running_api_node(
            settings, store=store, objects=objects, owner=owner, clock=clock, random=random
        ) as node:
            calls = HeapCalls(HeapBackend(heaps=node.heaps, cluster=node.cluster, clock=clock, random=random))
            await agent.administration.create("wide", 4)
            await agent.administration.create("one", 1)
            await async_until(lambda: agent.call(SpineRequest(topic="wide")))
            await async_until(lambda: calls.call(SpineRequest(topic="wide")), within_s=5)
            assert await calls.call(SpineRequest(topic="wide")) == await agent.call(SpineRequest(topic="wide"))
            assert await calls.call(SpineRequest(topic="one")) == ""
            calls.close()

"""`holdfast registry demo` against PXRS's own numbers."""

from contextlib import aclosing
from dataclasses import replace

import msgspec
import pytest
from tests.support.registry import RegistryWorld

from holdfast.cli.registry_demo import DemoPhase, run_demo
from holdfast.contracts.store import Store
from holdfast.testing.harness import StoreHarness


@pytest.fixture(params=["memory", "sqlite"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def world(harness: StoreHarness, store: Store) -> RegistryWorld:
    return RegistryWorld(harness, store)


async def phases(world: RegistryWorld, plan: str) -> dict[str, DemoPhase]:
    settings = replace(world.settings, plan=plan)
    demo = run_demo(world.store, clock=world.clock, random=world.random, settings=settings)
    async with aclosing(demo):
        return {phase.phase: phase async for phase in demo}


def owned(phase: DemoPhase, consumer: str | None) -> list[int]:
    return [state.id for state in phase.partitions if state.owner == consumer]


async def test_the_contiguous_demo_has_pxrs_numbers(world: RegistryWorld) -> None:
    seen = await phases(world, "contiguous")
    assert list(seen) == ["initial assignment", "100 messages", "A removed", "rebalance", "final"]

    start = seen["initial assignment"]
    assert [owned(start, name) for name in "ABC"] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert {state.epoch for state in start.partitions} == {1}

    hundred = seen["100 messages"]
    assert [state.checkpoint for state in hundred.partitions] == [14, 13, 12, 12, 12, 12, 12, 13]
    assert hundred.processed == {"A": 39, "B": 36, "C": 25}
    assert {state.epoch for state in hundred.partitions} == {1}

    removed = seen["A removed"]
    assert owned(removed, None) == [0, 1, 2]
    assert [state.epoch for state in removed.partitions] == [2, 2, 2, 1, 1, 1, 1, 1]

    moved = seen["rebalance"]
    assert [owned(moved, name) for name in "BC"] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert [state.epoch for state in moved.partitions] == [3, 3, 3, 1, 3, 3, 1, 1]

    final = seen["final"]
    assert [state.checkpoint for state in final.partitions] == [21, 20, 18, 17, 17, 18, 19, 20]
    assert final.processed == {"A": 39, "B": 61, "C": 50}


async def test_the_sticky_demo_moves_only_what_a_left(world: RegistryWorld) -> None:
    seen = await phases(world, "sticky")
    assert [state.epoch for state in seen["rebalance"].partitions] == [3, 3, 3, 1, 1, 1, 1, 1]
    assert [owned(seen["rebalance"], name) for name in "BC"] == [[0, 3, 4, 5], [1, 2, 6, 7]]
    assert sum(seen["final"].processed.values()) == 150


async def test_the_demo_leaves_nothing_behind_even_when_it_is_cut_short(world: RegistryWorld) -> None:
    demo = run_demo(world.store, clock=world.clock, random=world.random, settings=world.settings)
    async with aclosing(demo):
        async for _ in demo:
            break
    assert (await world.store.scan("registry/", "registry0")).entries == ()


async def test_a_phase_is_json(world: RegistryWorld) -> None:
    first = next(iter((await phases(world, "contiguous")).values()))
    shown = msgspec.to_builtins(first)
    assert shown["partitions"][7] == {"id": 7, "owner": "C", "epoch": 1, "checkpoint": 0, "intent": None}
    assert shown["processed"] == {"A": 0, "B": 0, "C": 0}

"""Three `holdfast serve` processes: one that is killed loses its session at once, one that stands still keeps it for its TTL."""

import asyncio
from pathlib import Path

import pytest
from tests.support.server_process import BROKER_ONLY, ServeProcess, started
from tests.support.waiting import until

from holdfast.contracts.store import Entry
from holdfast.contracts.validation import prefix_end
from holdfast.kernel.keys import PLACED, PLANNER, holder_key, member_key
from holdfast.kernel.lease import read_holder
from holdfast.stores.urls import open_store
from holdfast.testing.harness import StoreHarness
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

TIMINGS = (
    *("--set", "session.renew_ms=500", "--set", "session.margin_ms=500"),
    # Long enough for a busy machine: what matters is that nothing but a death is reported at all.
    *("--set", "early_takeover.window_ms=15000", "--set", "peers.silent_ms=5000"),
)
ENDED, REPLACED = "before its TTL", "planning in its place"


async def _entries(url: str, prefix: str) -> list[Entry]:
    async with open_store(url, clock=RealClock(), random=SystemRandom()) as store:
        return list((await store.scan(prefix, prefix_end(prefix))).entries)


class Three:
    """The processes, and which of them plans."""

    def __init__(self, directory: Path, url: str, *, ttl_ms: int) -> None:
        ttl = ("--set", f"session.ttl_ms={ttl_ms}")
        shared = ("--store", url, "--objects", f"file://{directory}/objects", *TIMINGS, *ttl)
        self.url = url
        self.nodes = {
            name: ServeProcess(directory / name, *BROKER_ONLY, "--agent-id", name, *shared)
            for name in ("ann", "bob", "carol")
        }

    def planner(self) -> str:
        (entry,) = until(lambda: asyncio.run(_entries(self.url, holder_key(PLANNER))), what="somebody plans")
        return read_holder(entry).holder

    def victim(self) -> str:
        planner = self.planner()
        return next(name for name in self.nodes if name != planner)

    def is_member(self, name: str) -> bool:
        return bool(asyncio.run(_entries(self.url, member_key("agent", name))))

    def leads(self, name: str) -> bool:
        return any(read_holder(each).holder == name for each in asyncio.run(_entries(self.url, holder_key(PLACED))))

    def until_gone(self, name: str) -> None:
        until(lambda: not self.is_member(name), what=f"the session of {name} has ended")

    def connections(self, name: str) -> int:
        """How often others have connected to it."""
        return sum(each.log.count(f"connected to agent {name} at") for each in self.nodes.values())

    def ends(self, how: str = ENDED) -> int:
        return sum(each.log.count(how) for each in self.nodes.values())

    def freeze_past_ttl(self) -> None:
        """So that whoever plans has done so for a TTL."""
        name = self.victim()
        node, connections = self.nodes[name], self.connections(name)
        node.freeze()
        self.until_gone(name)
        node.thaw()
        self.until_connected(name, connections)

    def until_connected(self, name: str, before: int) -> None:
        until(lambda: self.is_member(name), what=f"{name} is a member")
        until(lambda: self.connections(name) >= before + 2, what=f"both others are connected to {name}")
        until(lambda: self.leads(name), what=f"{name} has something that could move")


@pytest.mark.long
@pytest.mark.parametrize("engine", ["postgres"])
async def test_a_visible_death_does_not_wait_for_the_ttl_and_a_frozen_process_does(
    harness: StoreHarness, tmp_path: Path
) -> None:
    def steps() -> None:
        three = Three(tmp_path, harness.url, ttl_ms=20_000)
        with started(*three.nodes.values()):
            for name in three.nodes:
                three.until_connected(name, 0)
            for _ in range(2):  # the first time the planner is new, and would end nothing whatever it saw
                three.freeze_past_ttl()
            assert three.ends() == 0
            assert not [each for each in three.nodes.values() if "looks dead" in each.log]
            for _ in range(5):  # a planner that lost its session to a busy machine is new again
                name = three.victim()
                node, connections = three.nodes[name], three.connections(name)
                node.kill()
                three.until_gone(name)
                if three.ends():
                    break
                node.start()
                three.until_connected(name, connections)
            assert three.ends() == 1

    await asyncio.to_thread(steps)


@pytest.mark.long  # the decision and its commit are shown under a fake clock in tests/kernel/test_early_ends.py
@pytest.mark.parametrize("engine", ["sqlite"])
async def test_a_visible_death_of_the_planner_is_ended_by_another_agent_that_plans(
    harness: StoreHarness, tmp_path: Path
) -> None:
    def steps() -> None:
        three = Three(tmp_path, harness.url, ttl_ms=8_000)
        with started(*three.nodes.values()):
            for name in three.nodes:
                three.until_connected(name, 0)
            for _ in range(5):  # on a busy machine planners lose their sessions, and the next one is new
                three.freeze_past_ttl()
                name = three.planner()
                node, connections = three.nodes[name], three.connections(name)
                node.kill()
                three.until_gone(name)
                if three.ends(REPLACED):
                    break
                node.start()
                three.until_connected(name, connections)
            assert three.ends(REPLACED) == 1
            assert three.planner() != name

    await asyncio.to_thread(steps)

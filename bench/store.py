"""`python -m bench.store`: every engine's commits, keep-alives and watch latency against its bare driver."""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from tests.support.store_engines import STORE_ENGINES

from bench.bare_drivers import VALUE, BareEtcd, BareMemory, BarePostgres, BareRedis, BareSqlite, Reference
from bench.measure import Compared, Step, compare_latencies, compare_rates
from holdfast.contracts.store import Absent, AtVersion, Changed, Committed, Put, Requirement, Store
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

IN_FLIGHT = 64


@asynccontextmanager
async def opened(engine: str, directory: Path) -> AsyncIterator[tuple[Store, Reference]]:
    """The engine and its bare driver, on one real server started for this run."""
    async with AsyncExitStack() as stack:
        reference: Reference
        if engine == "memory":
            url, reference = "memory:", BareMemory()
        elif engine == "sqlite":
            url = f"sqlite:///{directory}/holdfast.db"
            bare = BareSqlite(directory / "bare.db")
            stack.callback(bare.close)
            reference = bare
        elif engine == "postgres":
            from tests.support.store_engines.postgres import PostgresServer

            server = stack.enter_context(PostgresServer(directory).running())
            url = server.url(schema="bench")
            reference = await stack.enter_async_context(BarePostgres.open(url.partition("?")[0]))
        elif engine == "redis":
            from tests.support.store_engines.redis import ValkeyServer

            port = stack.enter_context(ValkeyServer(directory).running()).port
            url = f"redis://127.0.0.1:{port}/0"
            reference = await stack.enter_async_context(BareRedis.open(port))
        else:
            from tests.support.store_engines.etcd import EtcdServer

            port = stack.enter_context(EtcdServer(directory).running()).port
            url = f"etcd://127.0.0.1:{port}/bench"
            reference = await stack.enter_async_context(BareEtcd.open(port))
        store = await stack.enter_async_context(open_store(url, clock=RealClock(), random=SystemRandom()))
        yield store, reference


def swapper(store: Store, lane: int) -> Step:
    """A compare-and-swap of one key after the other, as a lease holder or checkpointing consumer would do it."""
    key, version = f"bench/{lane}", 0

    async def swap() -> None:
        nonlocal version
        unmoved: Requirement = AtVersion(key, version) if version else Absent(key)
        outcome = await store.commit(require=(unmoved,), apply=(Put(key, VALUE),))
        assert isinstance(outcome, Committed)
        version = outcome.version

    return swap


async def watched(store: Store) -> float:
    """Seconds from the send of a commit to its arrival at a watcher."""
    here = await store.scan("bench/push", "bench/pusi")
    async with store.watch("bench/push", from_version=here.version) as commits:
        arrival = asyncio.ensure_future(anext(commits))
        await asyncio.sleep(0.01)  # the watch is in place
        started = time.perf_counter()
        await store.commit(apply=(Put("bench/push", VALUE),))
        assert isinstance(await arrival, Changed)
        return time.perf_counter() - started


async def measure(engine: str, *, rounds: int, seconds: float, progress: Progress) -> dict[str, Compared]:
    with tempfile.TemporaryDirectory() as directory:
        async with opened(engine, Path(directory)) as (store, bare):
            task = progress.add_task(engine, total=6)
            results = {}
            lanes = range(1, IN_FLIGHT + 1)
            alone, many = [swapper(store, 0)], [swapper(store, lane) for lane in lanes]
            for name, bare_step in (("same effects", bare.commit), ("plain swap", bare.swap)):
                results[f"commits/s, sequential, bare {name}"] = await compare_rates(
                    alone, [partial(bare_step, 0)], rounds=rounds, seconds=seconds
                )
                progress.advance(task)
                results[f"commits/s, {IN_FLIGHT} in flight, bare {name}"] = await compare_rates(
                    many, [partial(bare_step, lane) for lane in lanes], rounds=rounds, seconds=seconds
                )
                progress.advance(task)
            session = await store.open_session(60_000)
            results["keep-alives/s"] = await compare_rates(
                [lambda: store.keep_alive(session.id)], [bare.renew], rounds=rounds, seconds=seconds
            )
            progress.advance(task)
            results["watch latency, ms"] = await compare_latencies(lambda: watched(store), bare.push, rounds=5 * rounds)
            progress.advance(task)
            return results


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.store", description=__doc__)
    parser.add_argument("--engine", choices=STORE_ENGINES, action="append", help="only this one (may be repeated)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="per round and side")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    table = Table(
        "engine", "operation", "ours", "bare driver", "ratio", title="Store engines against their bare drivers"
    )
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for engine in args.engine or STORE_ENGINES:
            results = asyncio.run(measure(engine, rounds=args.rounds, seconds=args.seconds, progress=progress))
            for operation, found in results.items():
                if args.json:
                    sys.stdout.write(json.dumps({"engine": engine, "operation": operation, **asdict(found)}) + "\n")
                else:
                    table.add_row(
                        engine, operation, f"{found.ours:,.2f}", f"{found.reference:,.2f}", f"{found.ratio:.2f}"
                    )
    if not args.json:
        Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())

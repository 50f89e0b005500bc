"""`holdfast registry …`: list a registry's partitions and consumers; its demo."""

import argparse
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

from holdfast.cli.arguments import add_family
from holdfast.cli.output import OK, print_json, print_line, print_rows, print_table
from holdfast.cli.registry_demo import DemoPhase, run_demo
from holdfast.cli.store.check import URLS
from holdfast.registry import PartitionState, RegistrySettings, RegistryStore
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import SystemRandom
from holdfast.vocabulary.settings import settings_from

PARTITION_COLUMNS = ("id", "owner", "epoch", "checkpoint")


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register this family's commands."""
    actions = add_family(commands, "registry", "partitions, their owners and checkpoints")
    demo = actions.add_parser(
        "demo",
        help="three consumers share partitions, one leaves, nothing is lost",
        description="Runs the whole registry in this process: consumers A, B and C share the partitions, 100 messages are "
        "processed, A leaves, its partitions move, 50 more messages are processed from the checkpoints.",
        epilog=URLS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    demo.add_argument("--store", metavar="URL", default="memory:", help="the registry's store (default: memory:)")
    demo.add_argument("--partitions", metavar="N", default="8", help="how many partitions (default: 8)")
    demo.add_argument(
        "--plan",
        default="sticky",
        metavar="contiguous|sticky",
        help="contiguous gives ranges of ids; sticky moves only what must move (default: sticky)",
    )
    demo.add_argument("--json", action="store_true", help="one JSON object per phase")
    demo.set_defaults(run=run_demo_command)
    for name, about, run in (
        ("partitions", "list partitions with owner, epoch and checkpoint", run_partitions),
        ("consumers", "list live consumers and the partitions of each", run_consumers),
    ):
        listing = actions.add_parser(
            name, help=about, epilog=URLS, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        listing.add_argument("--store", metavar="URL", required=True, help="the registry's store")
        listing.add_argument(
            "--namespace", default=RegistrySettings().namespace, help="the registry's name (default: pxrs)"
        )
        listing.add_argument("--json", action="store_true", help="one JSON object per line")
        listing.set_defaults(run=run)


async def run_demo_command(args: argparse.Namespace) -> int:
    """Print each phase of the demo as it is reached."""
    settings = settings_from(RegistrySettings, {"partitions": args.partitions, "plan": args.plan})
    clock, random = RealClock(), SystemRandom()
    async with open_store(args.store, clock=clock, random=random) as store:
        if not args.json:
            print_line(f"registry on {store.facts.engine} ({store.facts.server}), plan {settings.plan}")
        async with aclosing(run_demo(store, clock=clock, random=random, settings=settings)) as phases:
            async for phase in phases:
                _print_phase(phase, as_json=args.json)
    return OK


def _print_phase(phase: DemoPhase, *, as_json: bool) -> None:
    rows = [_row(state) for state in phase.partitions]
    if as_json:
        print_json({"phase": phase.phase, "partitions": rows, "processed": phase.processed})
        return
    print_table(phase.phase, rows, PARTITION_COLUMNS)
    print_line("processed: " + ", ".join(f"{name} {count}" for name, count in phase.processed.items()) + "\n")


async def run_partitions(args: argparse.Namespace) -> int:
    """Print every partition of a registry."""
    async with _registry(args) as registry:
        rows = [_row(state) for state in await registry.partitions()]
    print_rows(f"partitions of {args.namespace}", rows, PARTITION_COLUMNS, as_json=args.json)
    return OK


async def run_consumers(args: argparse.Namespace) -> int:
    """Print every live consumer of a registry."""
    async with _registry(args) as registry:
        states = await registry.partitions()
        rows = [
            {"id": consumer.id, "partitions": [state.id for state in states if state.owner == consumer.id]}
            for consumer in await registry.active()
        ]
    print_rows(f"consumers of {args.namespace}", rows, ("id", "partitions"), as_json=args.json)
    return OK


@asynccontextmanager
async def _registry(args: argparse.Namespace) -> AsyncIterator[RegistryStore]:
    clock, random = RealClock(), SystemRandom()
    async with open_store(args.store, clock=clock, random=random, create=False) as store:
        settings = settings_from(RegistrySettings, {"namespace": args.namespace})
        registry = RegistryStore(store, clock=clock, random=random, settings=settings)
        if not await registry.partitions():
            raise InvalidError("registry namespace", args.namespace, "the namespace of a registry in this store")
        yield registry


def _row(state: PartitionState) -> dict[str, object]:
    return {"id": state.id, "owner": state.owner, "epoch": state.epoch, "checkpoint": state.checkpoint}

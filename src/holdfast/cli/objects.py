"""`holdfast objects …`: whose the objects in a bucket are, and how they change hands."""

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec

from holdfast.app.embedded_etcd.place import opened_store_url
from holdfast.cli.arguments import add_family, add_yes, confirmed
from holdfast.cli.output import FAILED, OK, print_json, print_line
from holdfast.cli.settings_flags import add_setting_flags, effective_settings_for
from holdfast.contracts.objects import Objects
from holdfast.contracts.store import Store
from holdfast.kernel.objects_owner import ObjectsOwner, adopt_objects, owner_of
from holdfast.kernel.owner_mark import OwnerMark, Ownership
from holdfast.objects.urls import open_objects
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom
from holdfast.vocabulary.redaction import redacted


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register this family's commands."""
    actions = add_family(commands, "objects", "whose the objects in a bucket are")
    show = actions.add_parser(
        "owner",
        help="show which cluster owns the objects, and whether that is this store's",
        description="Compares the mark in object storage with that of the store, and changes nothing. Takes the flags of "
        "`holdfast serve`. Exits with 1 if a server with these settings would refuse to start.",
    )
    show.add_argument("--json", action="store_true", help="one JSON object")
    add_setting_flags(show)
    show.set_defaults(run=run_owner)
    adopt = actions.add_parser(
        "adopt",
        help="make the objects those of this store: after a restore, or when their cluster is gone",
        description="Takes the objects over from another cluster, or from a later state of this store. Stop every process of "
        "their owner first, for good: from now on it is refused. Nothing is deleted: what this store does not know "
        "stays where it is, for 30 days (upkeep.unproven_keep_ms) if it is of the same cluster, else for ever. Takes the "
        "flags of `holdfast serve`.",
    )
    adopt.add_argument("--force", action="store_true", help="also if their owner was active within the last minutes")
    adopt.add_argument("--json", action="store_true", help="the new mark as one JSON object")
    add_yes(adopt)
    add_setting_flags(adopt)
    adopt.set_defaults(run=run_adopt)


@dataclass(frozen=True, slots=True)
class _Opened:
    store: Store
    objects: Objects
    place: str


@asynccontextmanager
async def _opened(args: argparse.Namespace, *, create_objects: bool) -> AsyncIterator[_Opened]:
    settings = effective_settings_for(args).settings
    clock, random = RealClock(), SystemRandom()
    async with (
        open_store(opened_store_url(settings), clock=clock, random=random, create=False) as store,
        open_objects(settings.objects, clock=clock, random=random, create=create_objects) as objects,
    ):
        yield _Opened(store, objects, redacted(settings.objects))


async def run_owner(args: argparse.Namespace) -> int:
    """Print both marks and what they mean."""
    async with _opened(args, create_objects=False) as opened:
        owner = await _owner(opened)
        view = await owner.view()
    if args.json:
        print_json(
            {
                "objects": opened.place,
                "cluster": owner.cluster,
                "store_version": view.store_version,
                "ownership": view.ownership.name.lower(),
                "found": msgspec.to_builtins(view.found),
                "recorded": msgspec.to_builtins(view.recorded),
            }
        )
    else:
        print_line(f"{opened.place}: {view.ownership.value}")
        print_line(f"  in object storage  {_shown(view.found)}")
        print_line(f"  in the store       {_shown(view.recorded)}")
        print_line(f"  the store itself   cluster {owner.cluster or 'none'} (version {view.store_version})")
    return OK if view.ownership in (Ownership.OURS, Ownership.BEGUN, Ownership.UNCLAIMED) else FAILED


async def run_adopt(args: argparse.Namespace) -> int:
    """Ask, take over, print the new mark."""
    async with _opened(args, create_objects=True) as opened:
        owner = await _owner(opened)
        found = (await owner.view()).found
        question = f"Take {opened.place} over from {_shown(found)}?"
        if found is not None and not confirmed(args, question):
            return OK
        mark = await adopt_objects(
            opened.store,
            opened.objects,
            clock=RealClock(),
            random=SystemRandom(),
            place=opened.place,
            force=args.force,
        )
    if args.json:
        print_json({"objects": opened.place, "mark": msgspec.to_builtins(mark)})
    else:
        print_line(f"{opened.place} belongs to {_shown(mark)}")
    return OK


async def _owner(opened: _Opened) -> ObjectsOwner:
    return await owner_of(opened.store, opened.objects, clock=RealClock(), random=SystemRandom(), place=opened.place)


def _shown(mark: OwnerMark | None) -> str:
    return "no mark" if mark is None else f"cluster {mark.cluster}, mark {mark.number} (version {mark.store_version})"

"""`holdfast secrets`: how the secrets in the store are sealed, new master keys, and rotation."""

import argparse
import asyncio
from typing import Final

from holdfast.app.embedded_etcd.place import opened_store_url
from holdfast.app.master_keys import load_master_keys
from holdfast.cli.arguments import Parser, Parsers, add_family
from holdfast.cli.cluster.access import add_cluster_command
from holdfast.cli.output import OK, print_json, print_line, print_rows
from holdfast.cli.settings_flags import effective_settings_for
from holdfast.pipeline.catalog.keys import SECRET_PREFIXES
from holdfast.security.master_keys import new_key_text
from holdfast.security.sealed_store import count_sealed, seal_stored
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import UsageError
from holdfast.vocabulary.random import SystemRandom

_COLUMNS: Final = ("key", "records", "current")


def add_commands(commands: "Parsers[Parser]") -> None:
    """Register this family's commands."""
    family = add_family(commands, "secrets", "how secrets in the store are sealed; rotate master keys")
    add_cluster_command(
        family,
        "status",
        run_status,
        does="list master keys in use",
        description="Lists by which master key the records with secrets are sealed, and how many are in plain text.",
    )
    add_cluster_command(
        family,
        "rotate",
        run_rotate,
        does="seal everything with the first master key",
        description="Seals every record again with the first key of --master-key-file (or HOLDFAST_MASTER_KEY); the older keys "
        "must follow it in the file, here and on every node, until this is done. It may be stopped and run again.",
    )
    made = family.add_parser(
        "generate-key",
        help="print a new master key",
        description="Prints a new master key: a line for the top of a key file, which only its owner may read.",
    )
    made.add_argument("--json", action="store_true", help="JSON, one object per line")
    made.set_defaults(run=run_generate)


async def run_status(args: argparse.Namespace) -> int:
    """Print how many records each key has sealed."""
    settings = effective_settings_for(args).settings
    keys = await asyncio.to_thread(load_master_keys, settings, generate=False)
    clock, random = RealClock(), SystemRandom()
    async with open_store(opened_store_url(settings), clock=clock, random=random, create=False) as store:
        found = await count_sealed(store, SECRET_PREFIXES)
    current = "" if keys is None else keys.current
    rows = [
        {"key": key, "records": count, "current": "yes" if key == current else "no"}
        for key, count in sorted(found.items())
    ]
    print_rows("keys", rows, _COLUMNS, as_json=args.json)
    return OK


async def run_rotate(args: argparse.Namespace) -> int:
    """Seal everything with the first key."""
    settings = effective_settings_for(args).settings
    keys = await asyncio.to_thread(load_master_keys, settings, generate=False)
    if keys is None:
        raise UsageError("there is no master key: give --master-key-file or HOLDFAST_MASTER_KEY")
    clock, random = RealClock(), SystemRandom()
    async with open_store(opened_store_url(settings), clock=clock, random=random, create=False) as store:
        changed = await seal_stored(store, keys, prefixes=SECRET_PREFIXES, clock=clock, random=random, rotate=True)
    print_line(f"{changed} records sealed with master key {keys.current}")
    return OK


async def run_generate(args: argparse.Namespace) -> int:
    """Print a new key."""
    key = new_key_text()
    if args.json:
        print_json({"key": key})
    else:
        print_line(key)
    return OK
